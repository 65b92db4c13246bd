"""Show what this node is made of: system, image, kernel, packages, settings, network, units, containers, and how its
boot and bootstrap went. No value of an environment, token or key is taken.

With --json it is a file that exhume compare takes.
"""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from exhume.cli import exit_codes
from exhume.cli.args import add_json, add_setting, option, zone_of
from exhume.cli.terminal import StagedProgress, show, suggest
from exhume.collect.inventory.reader import take_inventory
from exhume.collect.node_root import NodeRoot
from exhume.model.errors import UsageError
from exhume.model.inventory import SECTIONS, Inventory
from exhume.model.inventory.codec import inventory_json
from exhume.model.settings import NODE_LABELS, UTC
from exhume.present.terminal.inventory import print_inventory


def add_options(parser: ArgumentParser) -> None:
    root = "The node's root directory; in a container, where the host's is mounted."
    option(parser, "--root DIR", root, type=Path, default=Path("/"))
    add_json(parser)
    add_setting(parser, UTC)


def run(options: Namespace) -> int:
    inventory = read_node(options.root)
    zone = zone_of(options)
    show(options, lambda: inventory_json(inventory), lambda terminal: print_inventory(terminal, inventory, zone))
    if not options.json:
        suggest("exhume inventory --json > node.json, then exhume compare node.json OTHER")
    nothing = all(getattr(inventory, section) is None for section in SECTIONS)
    return exit_codes.NO_DATA if nothing else exit_codes.OK


def read_node(root: Path) -> Inventory:
    """The inventory of the node whose root is there. Raises UsageError where there is no such directory."""
    if not root.is_dir():
        raise UsageError(f"--root {root}: there is no such directory")
    with StagedProgress() as progress:
        # Labels in our environment are this node's.
        labels = NODE_LABELS.from_environment() if root == Path("/") else {}
        return take_inventory(NodeRoot(root), labels, progress)
