"""The command where there is nothing to ask, and its messages."""


def test_a_root_without_any_manager_is_one_sentence(exhume, tmp_path):
    result = exhume("audit", "--root", str(tmp_path), check=False)
    assert (result.returncode, result.stdout) == (3, "")
    assert result.stderr.startswith("exhume: there is nothing to audit:") and result.stderr.count("\n") == 1


def test_a_root_that_is_not_there_is_one_sentence(exhume, tmp_path):
    result = exhume("audit", "--root", str(tmp_path / "none"), "--json", check=False)
    assert result.returncode == 2 and "there is no such directory" in result.stderr


def test_hours_have_bounds(exhume):
    for hours in ("0", "-1", "x", "1e9"):
        assert exhume("audit", "--hours", hours, check=False).returncode == 2


def test_it_is_in_the_list_of_commands(exhume):
    assert "audit" in exhume("--help").stdout
