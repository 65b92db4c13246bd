"""Whether a service came with the image or was set up since: by which file, and what time."""

from tests.diagnose.audit.audit_scenes import BEFORE, FIRST_BOOT, NOW, SINCE, container, facts, judged, unit

from exhume.model.audit import FileFact, Origin, Trait
from exhume.model.clock import NANOS


def test_what_is_older_than_the_first_boot_is_the_images():
    found = judged(unit())
    assert found.provenance.origin is Origin.IMAGE
    assert Trait.DEFAULT_ON in found.traits and not found.troubled


def test_a_newer_link_means_enabled_by_a_person():
    found = judged(unit(), linked=SINCE)
    assert found.provenance.origin is Origin.CONFIGURED
    assert "multi-user.target.wants/thing.service" in found.provenance.why
    assert Trait.DEFAULT_ON not in found.traits


def test_a_drop_in_that_was_made_since_is_too():
    service = unit(drop_ins=("/etc/systemd/system/thing.service.d/local.conf",))
    known = facts(service)
    files = {**known.files, service.drop_ins[0]: FileFact(service.drop_ins[0], SINCE)}
    found = judged(service, known=facts(service, files=files, links=known.links))
    assert found.provenance.origin is Origin.CONFIGURED and "local.conf" in found.provenance.why


def test_a_fix_that_holds_it_back_is_no_order_to_run():
    service = unit(drop_ins=("/etc/systemd/system/thing.service.d/90-exhume.conf",))
    known = facts(service)
    files = {**known.files, service.drop_ins[0]: FileFact(service.drop_ins[0], SINCE)}
    assert judged(service, known=facts(service, files=files, links=known.links)).provenance.origin is Origin.IMAGE


def test_a_drop_in_of_the_image_is_the_images():
    assert judged(unit(drop_ins=("/etc/systemd/system/thing.service.d/local.conf",))).provenance.origin is Origin.IMAGE


def test_a_link_of_the_first_boots_presets_is_the_images():
    at = FIRST_BOOT.at + NANOS // 2
    assert judged(unit(), linked=at).provenance.origin is Origin.IMAGE


def test_an_upgrade_of_the_package_does_not_make_it_anybodys_order():
    service = unit()
    known = facts(service)
    fragment = service.fragment or ""
    files = {**known.files, fragment: FileFact(fragment, SINCE, "thing")}
    found = judged(service, known=facts(service, files=files, links=known.links))
    assert found.provenance.origin is Origin.IMAGE and found.provenance.package == "thing"


def test_a_static_unit_of_a_package_that_is_new_may_be_installed_or_upgraded():
    service = unit(enabled="static")
    fragment = service.fragment or ""
    known = facts(service, files={fragment: FileFact(fragment, SINCE, "thing")}, links={})
    assert judged(service, known=known).provenance.origin is Origin.UNKNOWN


def test_units_made_at_run_time_say_so():
    transient = unit("run-u7.service", fragment="/run/systemd/transient/run-u7.service")
    assert judged(transient).provenance.origin is Origin.RUNTIME


def test_without_a_first_boot_nothing_is_claimed():
    service = unit()
    found = judged(service, known=facts(service, first_boot=None))
    assert found.provenance.origin is Origin.UNKNOWN and Trait.DEFAULT_ON not in found.traits


def test_a_unit_without_a_file_is_of_unknown_origin():
    assert judged(unit(fragment=None)).provenance.origin is Origin.UNKNOWN


def test_container_provenance_by_creation_time():
    assert judged(container(created=BEFORE)).provenance.origin is Origin.IMAGE
    assert judged(container(created=SINCE)).provenance.origin is Origin.CONFIGURED
    assert judged(container(created=None)).provenance.origin is Origin.UNKNOWN
    assert NOW > SINCE > FIRST_BOOT.at > BEFORE
