"""Ports of the node that lead into a container, by what engines tell."""

import pytest

from exhume.collect.containers.docker_services import published_ports


@pytest.mark.parametrize(
    ("reported", "ports"),
    [
        ({"HostConfig": {"PortBindings": {"2222/tcp": [{"HostIp": "", "HostPort": "22"}]}}}, (22,)),
        ({"NetworkSettings": {"Ports": {"22/tcp": [{"HostPort": "49153"}], "80/tcp": None}}}, (49153,)),
        ({"HostConfig": {"PortBindings": {"22/udp": [{"HostPort": "22"}]}}}, ()),
        (
            {"HostConfig": {"PortBindings": {"80/tcp": [{"HostPort": "8000-8002"}, {"HostPort": ""}]}}},
            (8000, 8001, 8002),
        ),
        ({"HostConfig": {"PortBindings": None}, "NetworkSettings": None}, ()),
        ({"HostConfig": {"PortBindings": {"80/tcp": [{"HostPort": "1-99999999999"}]}}}, tuple(range(1, 65537))),
        ({}, ()),
    ],
)
def test_what_is_ordered_and_what_is_given(reported, ports):
    assert published_ports(reported) == ports
