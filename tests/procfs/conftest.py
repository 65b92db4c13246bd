"""The fake node that the tests of collect/ have, too."""

from tests.collect.conftest import node, steady_costs

__all__ = ["node", "steady_costs"]
