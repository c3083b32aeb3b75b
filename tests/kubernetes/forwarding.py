"""A port on loopback that leads to the API server, whose network is cut off from this machine's."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from agent.workbench.local.syscalls import CLONE_NEWNET, setns

CHUNK = 65536


@asynccontextmanager
async def forwarded(process: int, address: tuple[str, int]) -> AsyncIterator[int]:
    """The port; `address` is one in the network of that process."""
    network = os.open(f"/proc/{process}/ns/net", os.O_RDONLY | os.O_CLOEXEC)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(OSError):
                await _join(reader, writer, await _connection(network, address))
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield int(server.sockets[0].getsockname()[1])
    finally:
        server.close()
        os.close(network)


async def _connection(network: int, address: tuple[str, int]) -> socket.socket:
    """Made in that network. Raises OSError."""
    client = _socket_in(network)
    try:
        await asyncio.get_running_loop().sock_connect(client, address)
    except BaseException:
        client.close()
        raise
    return client


def _socket_in(network: int) -> socket.socket:
    own = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        setns(network, CLONE_NEWNET)
        try:
            client = socket.socket()
        finally:
            setns(own, CLONE_NEWNET)
    finally:
        os.close(own)
    client.setblocking(False)
    return client


async def _join(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, client: socket.socket) -> None:
    """Until both sides have said all."""
    there, to_there = await asyncio.open_connection(sock=client)
    try:
        await asyncio.gather(_pump(reader, to_there), _pump(there, writer))
    finally:
        to_there.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(CHUNK):
        writer.write(data)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()
