"""/proc/interrupts and /proc/softirqs."""

import pytest

from exhume.procfs.interrupts import interrupt_name, parse_header, parse_label, parse_row, parse_softirq

TABLE = b"""            CPU0       CPU2
   0:         41          0   IO-APIC    2-edge      timer
  24:          7         12  PCI-MSI 49152-edge      virtio0-input.0
 LOC:        100        200   Local timer interrupts
 ERR:          3
"""


def test_a_table_with_a_core_offline() -> None:
    header, timer, queue, local, errors, rest = TABLE.split(b"\n")
    assert parse_header(header) == (0, 2)
    assert [parse_label(row) for row in (timer, queue, local, errors, rest)] == ["0", "24", "LOC", "ERR", ""]
    row = parse_row(queue, 2)
    assert row is not None
    assert (row.counts, row.name) == ([7, 12], "virtio0-input.0")
    row = parse_row(local, 2)
    assert row is not None
    assert (row.counts, row.name) == ([100, 200], "Local timer interrupts")
    assert parse_row(errors, 2) is None


def test_every_truncation_of_a_row() -> None:
    row = TABLE.split(b"\n")[2]
    for length in range(len(row)):
        parsed = parse_row(row[:length], 2)
        assert parsed is None or len(parsed.counts) == 2


def test_one_softirq() -> None:
    content = b"        CPU0  CPU1\n  NET_TX:  1  2\n  NET_RX:  30  4294967295\n"
    counts = parse_softirq(content, b"NET_RX")
    assert counts is not None
    assert counts.tolist() == [30, 4294967295]
    assert parse_softirq(content, b"TASKLET") is None


@pytest.mark.parametrize(
    ("rest", "name"),
    [
        (b"PCI-MSIX-0000:00:03.0   1-edge      virtio2-input.0", "virtio2-input.0"),
        (b"IO-APIC   5-edge      ACPI:Ged", "ACPI:Ged"),
        (b"IR-PCI-MSI 524288-edge      eth0-Tx-Rx-0", "eth0-Tx-Rx-0"),
        (b"IO-APIC   9-fasteoi   acpi", "acpi"),
        (b"IO-APIC  16-fasteoi   ehci_hcd:usb1, uhci_hcd:usb2", "ehci_hcd:usb1, uhci_hcd:usb2"),
        (b"    GICv3  27 Level     arch_timer", "arch_timer"),
        (b"  ITS-MSI 524288 Edge      eth0-Tx-Rx-0", "eth0-Tx-Rx-0"),
        (b"", ""),
    ],
)
def test_names_in_the_table(rest: bytes, name: str) -> None:
    assert interrupt_name(rest, numbered=True) == name
