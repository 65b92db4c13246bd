"""The messages of the interface, out of their compiled description.

The description is read when it is needed, instead of Python code made from it, so that any version of protobuf will do.
"""

from functools import lru_cache
from importlib.resources import files
from typing import Any


@lru_cache(maxsize=1)
def messages() -> dict[str, Any]:
    """The classes of all messages, by their names without the package."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    described = descriptor_pb2.FileDescriptorSet.FromString(
        files("exhume.collect.cri").joinpath("runtime.protoset").read_bytes()
    )
    pool = descriptor_pool.DescriptorPool()
    found = {}
    for file in described.file:
        pool.Add(file)
        for message in file.message_type:
            descriptor = pool.FindMessageTypeByName(f"{file.package}.{message.name}")
            found[message.name] = message_factory.GetMessageClass(descriptor)
    return found
