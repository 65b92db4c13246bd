"""Names for addresses in files: symbol tables are requested on the first hit and kept within a budget of bytes.

Nothing here waits: an address that is not resolved yet gets a placeholder frame, and its name some ticks later.
"""

import os
import time
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from exhume.collect.symbols.file_reader import FileReader, HeldFile, Views
from exhume.collect.symbols.frame import USER, Frame, make_frame
from exhume.collect.symbols.mappings import MappedFile
from exhume.collect.symbols.owners import Owner, Owners, RefusalLog
from exhume.collect.symbols.parse_queue import ParseQueue
from exhume.collect.symbols.parser.demangle import is_mangled
from exhume.collect.symbols.parser.open_file import (
    DEFERRED,
    FAILED,
    MALFORMED,
    NOT_ELF,
    OVER_BUDGET,
    TIMEOUT,
    FileRefused,
    Identity,
    readable,
)
from exhume.collect.symbols.parser.program import Program, unpack_outlines, unpack_program
from exhume.collect.symbols.parser.table import U64
from exhume.collect.symbols.parser.wire import MAX_FILES, Arrays, BadReply, column, pieces
from exhume.model.process import give_back
from exhume.procfs.host import Host

DEFAULT_BUDGET = 12 << 20
# A node with many programs may need more at once; otherwise the same files would be read again and again. The budget
# grows up to this factor when a file is hit again soon after it was evicted.
_MOST_GROWTH = 2
_AGAIN_SOON_S = 60.0
_REMEMBERED = 1024
_FRAME_BYTES = 400
_STATE_BYTES = 300
_MAX_FILES = 4096
_TRIM_EVERY = 512 << 10
_MAX_BUILD_ID = 64
_MAX_OFFSETS = 4096  # per request
_CHECK_EVERY_S = 10.0
_RETRY_FIRST_S = 1.0
_RETRY_AT_MOST_S = 60.0
_RETRY_NAMES_S = 5.0
# A file's names are requested every fourth tick: a request costs half a millisecond, however many names it asks for.
_ASK_EVERY_S = 3.5
# How many ticks a sample waits for its names.
_PATIENCE = 5


class _FileState:
    """What is known about one mapped file. `program` is None when the file could not be read, or has not been read yet.
    `asked`: a request is in flight. `deferred`: there is no answer only because time ran out. `names_soon`: names will
    arrive once requested. `alone`: do not request it together with other files."""

    __slots__ = (
        "alone",
        "asked",
        "backoff",
        "checked",
        "deferred",
        "frames",
        "names_from",
        "names_soon",
        "outline_from",
        "owner",
        "program",
    )

    def __init__(self, now: float, owner: Owner) -> None:
        self.owner = owner
        self.program: Program | None = None
        self.asked = False
        self.deferred = False
        self.frames: dict[int, Frame] = {}
        self.checked = now
        self.backoff = _RETRY_FIRST_S
        self.outline_from = now
        self.names_from = now
        self.names_soon = True
        self.alone = False


class _Names:
    """Functions of a file whose names only the parser knows."""

    __slots__ = ("indexes", "known", "program", "views")

    def __init__(self, views: Views, known: _FileState, program: Program, indexes: set[int]) -> None:
        self.views, self.known, self.program, self.indexes = views, known, program, indexes

    @property
    def file(self) -> MappedFile:
        return self.views[0][1].file


class _Loaded:
    """The parser's first reply about a file: its functions, and what it returned for those that were hit."""

    __slots__ = ("names", "outlines", "program")

    def __init__(self, program: Program) -> None:
        self.program = program
        self.outlines: tuple[U64, U64] | None = None
        self.names: dict[int, bytes] = {}


class FileSymbols:
    """Looks up file offsets in the symbol tables of the files that processes map."""

    def __init__(
        self,
        host: Host,
        budget: int = DEFAULT_BUDGET,
        clock: Callable[[], float] = time.monotonic,
        queue: ParseQueue | None = None,
        refusals: RefusalLog | None = None,
    ) -> None:
        self._host = host
        self._budget = budget
        self._most_budget = budget * _MOST_GROWTH
        # When files were evicted to stay within the budget, most recent last.
        self._forgotten: OrderedDict[MappedFile, float] = OrderedDict()
        self._clock = clock
        self._known: OrderedDict[MappedFile, _FileState] = OrderedDict()
        # The same file is often mapped under several names; its table is loaded once.
        self._programs: dict[Identity, Program] = {}
        self._unchecked = self._loaded_bytes = 0
        # Functions whose names have yet to be requested, each file at its own time.
        self._unasked: dict[MappedFile, _Names] = {}
        # Files to check for a change since they were read.
        self._unverified: list[tuple[Views, _FileState, Program]] = []
        # Modules with newly learnt or evicted symbols.
        self._changed: set[str] = set()
        self._refusals = refusals or RefusalLog()
        self.queue = queue or ParseQueue(self._refusals)
        self._owners = Owners(host, clock)

    @property
    def nbytes(self) -> int:
        frames = sum(len(known.frames) for known in self._known.values())
        return sum(program.nbytes for program in self._programs.values()) + frames * _FRAME_BYTES

    def frames(self, views: Views, offsets: list[int]) -> list[Frame]:
        """A frame for each offset in a file, read through any of the processes that map it."""
        file = views[0][1].file
        known = self._known_file(views, offsets)
        program = known.program
        if program is None:
            return [_nameless(file, offset, known) for offset in offsets]
        at = program.find(np.array(offsets, np.uint64)).tolist()
        fresh = {index for index in at if index >= 0 and index not in known.frames}
        waits = not program.is_outlined and min(at, default=0) < 0
        if waits and not known.asked and known.outline_from <= self._clock():
            self._ask_outlines(views, known, program)
        waits &= known.asked or known.outline_from <= self._clock()
        if fresh:
            self._name(views, known, program, fresh)
        # A function has one number, so it gets one frame even if its name cannot be read now.
        return [
            known.frames.get(index)
            or (
                _nameless(file, program.start(index), known, deferred=True)
                if index >= 0
                else _nameless(file, offset, known if waits else None, deferred=waits)
            )
            for index, offset in zip(at, offsets, strict=True)
        ]

    def poll(self) -> None:
        """Request the names that are due. Files with the same owner and filesystem share a request, since they fail
        together."""
        now = self._clock()
        unverified: defaultdict[tuple[Owner, Any], list[tuple[Views, _FileState, Program]]] = defaultdict(list)
        for each in self._unverified:
            unverified[self._payer(each[0]), each[0][0][1].file.key[:2]].append(each)
        self._unverified.clear()
        for (owner, _), files in unverified.items():
            self._ask_rewritten(owner, files)
        batches: defaultdict[tuple[Owner, Any], list[_Names]] = defaultdict(list)
        for file, names in list(self._unasked.items()):
            known = names.known
            if self._known.get(file) is not known or known.program is not names.program:
                del self._unasked[file]
            elif not known.asked and now >= known.names_from:
                del self._unasked[file]
                names.indexes -= known.frames.keys()
                if not names.indexes:
                    continue
                known.asked = True
                known.names_from = now + _ASK_EVERY_S
                filesystem = file if known.alone else (file.key.major, file.key.minor)
                batches[self._payer(names.views), filesystem].append(names)
        for (owner, _), batch in batches.items():
            for first in range(0, len(batch), MAX_FILES):
                self._ask_names(owner, batch[first : first + MAX_FILES])

    def take_changed(self) -> set[str]:
        """Modules whose frames may have changed since the last call."""
        changed, self._changed = self._changed, set()
        return changed

    def functions(self, file: MappedFile, offsets: npt.NDArray[np.uint64]) -> tuple[int, npt.NDArray[np.intp]]:
        """The number of the program that was read from a file, and the numbers of the functions at some of its offsets.
        Functions with the same number have the same frame; a function without a name gets a number once its name was
        requested."""
        known = self._known.get(file)
        if known is None or known.program is None:
            return 0, np.full(len(offsets), -1, np.intp)
        return known.program.number, known.program.find(offsets)

    def _known_file(self, views: Views, offsets: list[int]) -> _FileState:
        now = self._clock()
        file = views[0][1].file
        known = self._known.get(file)
        if known is None:
            if now - self._forgotten.pop(file, -_AGAIN_SOON_S) < _AGAIN_SOON_S:
                self._budget = min(self._budget + self._budget // 8, self._most_budget)
            space = views[0][0]
            known = self._known[file] = _FileState(now, self._owners.of(space.pid, space.lineage))
            self._ask_program(views, known, offsets)
            if len(self._known) > _MAX_FILES:
                self._keep_budget()
            return known
        self._known.move_to_end(file)
        if known.asked:
            return known
        if known.program is None:
            if known.deferred or now - known.checked >= known.backoff:
                known.checked = now
                if not known.deferred:
                    known.backoff = min(known.backoff * 2, _RETRY_AT_MOST_S)
                self._ask_program(views, known, offsets)
        elif now - known.checked >= _CHECK_EVERY_S:
            known.checked = now
            self._unverified.append((views, known, known.program))
        return known

    def _ask_rewritten(self, owner: Owner, batch: "list[tuple[Views, _FileState, Program]]") -> None:
        """Check which files were rewritten in place (same inode, different content), and evict those."""
        paths = [f"{self._host.proc}/{views[0][0].pid}/root{views[0][1].file.path}" for views, _, _ in batch]

        def done(found: list[Identity | None] | FileRefused) -> None:
            if isinstance(found, FileRefused):
                if found.code == TIMEOUT:
                    self._note(found, batch[0][0])
                return
            for (views, known, program), now in zip(batch, found, strict=True):
                same_inode = now is not None and now[:2] == program.identity[:2]
                if same_inode and now != program.identity and known.program is program:
                    self._changed.add(views[0][1].file.module)
                    self._programs.pop(program.identity, None)
                    known.program = None
                    known.frames = {}
                    known.backoff = 0.0

        self.queue.submit(owner, _device(batch[0][0][0][1].file), lambda reader: reader.identities(paths), done)

    def _ask_program(self, views: Views, known: _FileState, offsets: list[int]) -> None:
        known.program, known.asked, known.deferred = None, True, False
        programs = self._programs
        roots = self._debug_roots(views)

        def load(reader: FileReader) -> _Loaded | None:
            file = _opened(reader, self._host, views)
            same = programs.get(file.identity)
            return _Loaded(same) if same is not None else _load(reader, file, roots, offsets[:_MAX_OFFSETS])

        def done(loaded: _Loaded | FileRefused | None) -> None:
            known.asked = False
            if isinstance(loaded, _Loaded):
                self._take(views[0][1].file, known, loaded)
            elif loaded is not None:
                known.deferred = loaded.code == DEFERRED
                if loaded.code in (MALFORMED, OVER_BUDGET, FAILED, TIMEOUT):
                    # The content will be the same next time, so retry only after the longest back-off.
                    known.backoff = _RETRY_AT_MOST_S
                if loaded.code != NOT_ELF:
                    self._note(loaded, views)

        self._submit(views, load, done)

    def _take(self, file: MappedFile, known: _FileState, loaded: _Loaded) -> None:
        program = self._programs.setdefault(loaded.program.identity, loaded.program)
        known.program = program
        # /proc and the kernel's records give one file two keys; a name found under one key applies to the other.
        same = (other for other in self._known.items() if other[1].program is program and other[1] is not known)
        known.frames = next((state.frames for each, state in same if each.module == file.module), {})
        if program is loaded.program:
            if loaded.outlines is not None and not program.is_outlined:
                program.outline(*loaded.outlines)
            for index, name in loaded.names.items():
                known.frames[index] = _named(file, program, index, name)
            self._loaded_bytes += program.nbytes
            self._grow(program.nbytes + len(loaded.names) * _FRAME_BYTES)
            if self._loaded_bytes > _TRIM_EVERY:
                self._loaded_bytes = 0
                give_back()
        if self._known.get(file) is not known and not any(state.program is program for state in self._known.values()):
            self._programs.pop(program.identity, None)  # evicted in the meantime

    def _ask_outlines(self, views: Views, known: _FileState, program: Program) -> None:
        """Request the bounds of a file's nameless functions, now that one of them was hit."""
        known.asked = True
        known.outline_from = self._clock() + _RETRY_AT_MOST_S

        def load(reader: FileReader) -> tuple[U64, U64] | None:
            file = _opened(reader, self._host, views)
            if file.identity != program.identity:
                return None
            return unpack_outlines(reader.ask({"kind": "outlines"}, [file]))

        def done(outlines: tuple[U64, U64] | FileRefused | None) -> None:
            known.asked = False
            if isinstance(outlines, FileRefused):
                if outlines.code == DEFERRED:
                    known.outline_from = self._clock()
                self._note(outlines, views)
            elif outlines is not None and not program.is_outlined:
                program.outline(*outlines)
                self._grow(outlines[0].nbytes)

        self._submit(views, load, done)

    def _name(self, views: Views, known: _FileState, program: Program, indexes: set[int]) -> None:
        """Make frames for functions that are hit for the first time, where neither the file nor the parser is needed;
        request the names of the others."""
        file = views[0][1].file
        unknown: set[int] = set()
        for index in indexes:
            from_file = program.needs_file and program.has_name(index)
            name = b"" if from_file else program.name(index, None)
            if from_file or is_mangled(name):
                unknown.add(index)
            else:
                known.frames[index] = _named(file, program, index, name)
        self._grow(len(indexes) * _FRAME_BYTES)
        if unknown:
            known.names_soon |= not known.asked and self._clock() >= known.names_from
            before = self._unasked.get(file)
            self._unasked[file] = _Names(views, known, program, unknown)
            if before is not None and before.program is program:
                unknown |= before.indexes

    def _ask_names(self, owner: Owner, batch: "list[_Names]") -> None:
        lookups: list[dict[int, list[int]]] = []
        mangled: list[dict[int, bytes]] = []
        for each in batch:
            program = each.program
            read = {index for index in each.indexes if program.needs_file and program.has_name(index)}
            lookups.append({index: program.lookup(index) for index in read})
            mangled.append({index: program.name(index, None) for index in each.indexes - read})

        def load(reader: FileReader) -> list[dict[int, bytes]]:
            wanted: list[tuple[int, int]] = []
            request: dict[str, Any] = {"kind": "names", "lookups": [], "mangled": []}
            for place, names in enumerate(mangled):
                request["mangled"] += [name.hex() for name in names.values()]
                wanted += [(place, index) for index in names]
            from_files = [place for place, read in enumerate(lookups) if read]
            opened = reader.open_regular([batch[place].program.source_at for place in from_files])
            files: list[HeldFile] = []
            for place, at_hand in zip(from_files, opened, strict=True):
                source: HeldFile | None = at_hand
                if source is None or source.identity != batch[place].program.source:
                    source = self._find_names(reader, batch[place].views, batch[place].program)
                if source is not None:
                    files.append(source)
                    request["lookups"].append(list(lookups[place].values()))
                    wanted += [(place, index) for index in lookups[place]]
            found = pieces(reader.ask(request, files), "lengths", "content") if wanted else []
            if len(found) != len(wanted):
                raise BadReply("the number of names")
            result: list[dict[int, bytes]] = [{} for _ in batch]
            for (place, index), name in zip(wanted, found, strict=True):
                result[place][index] = name
            return result

        def done(found: list[dict[int, bytes]] | FileRefused) -> None:
            now = self._clock()
            for place, each in enumerate(batch):
                known = each.known
                known.asked = False
                self._changed.add(each.file.module)
                if isinstance(found, FileRefused) and found.code != DEFERRED and len(batch) > 1:
                    # The failure may concern only one of the files.
                    known.names_from, known.alone = now, True
                elif isinstance(found, FileRefused) or not found[place]:
                    known.names_from, known.names_soon = now + _RETRY_NAMES_S, False
                    if isinstance(found, FileRefused) and found.code != NOT_ELF:
                        self._note(found, each.views)
                elif known.program is each.program:
                    for index, name in found[place].items():
                        known.frames[index] = _named(each.file, each.program, index, name)

        self.queue.submit(owner, _device(batch[0].file), load, done)

    def _grow(self, size: int) -> None:
        """Account for this many more bytes. The total is recomputed from time to time."""
        self._unchecked += size
        if self._unchecked > self._budget // 16:
            self._unchecked = 0
            self._keep_budget()

    def _debug_roots(self, views: Views) -> list[str]:
        """Where debug files may be installed: in the root of the processes that map the file, or in ours."""
        return [*(f"{self._host.proc}/{space.pid}/root" for space, _ in views), ""]

    def _find_names(self, reader: FileReader, views: Views, program: Program) -> HeldFile | None:
        """The file that holds the names, wherever the mapped file can be reached now."""
        mapped = reader.open_mapped(self._host, views)
        if mapped is None:
            return None
        # The names of a stripped file are in a separate debug file, which may have been reached through a process that
        # has exited.
        found = [mapped]
        if program.source != program.identity:
            reply = reader.ask({"kind": "debug"}, [mapped], keep=True)
            found = _debug_files(reader, reply, mapped, self._debug_roots(views))
        match = next((file for file in found if file.identity == program.source), None)
        if match is not None:
            program.source_at = match.root, match.path
        return match

    def _submit(self, views: Views, job: Callable[[FileReader], Any], done: Callable[[Any], None]) -> None:
        """Queue a job that reads a file, charged to the first owner that has some of its share left."""
        file = views[0][1].file

        def finished(result: Any) -> None:
            self._changed.add(file.module)
            done(result)

        self.queue.submit(self._payer(views), _device(file), job, finished)

    def _payer(self, views: Views) -> Owner:
        owners = (self._owners.of(space.pid, space.lineage) for space, _ in views)
        owner = next((owner for owner in owners if self.queue.affords(owner)), None)
        return owner or self._owners.of(views[0][0].pid, views[0][0].lineage)

    def _note(self, refusal: FileRefused, views: Views) -> None:
        space, mapping = views[0]
        self._refusals.note(refusal, mapping.file.path, space.pid, self._owners.of(space.pid, space.lineage))

    def _keep_budget(self) -> None:
        """Evict files until the rest fits: from the owner that uses most, least recently hit first."""
        sizes: Counter[Owner] = Counter()
        files: defaultdict[Owner, deque[MappedFile]] = defaultdict(deque)
        users: Counter[int] = Counter()
        for file, known in self._known.items():
            files[known.owner].append(file)
            # A table shared by several mapped files is charged to the first.
            new = known.program is not None and not users[known.program.number]
            sizes[known.owner] += _state_bytes(known, with_program=new)
            if known.program is not None:
                users[known.program.number] += 1
        size = sizes.total()
        # Evict many at once: each round recomputes the total.
        most = _MAX_FILES * 7 // 8 if len(self._known) > _MAX_FILES else _MAX_FILES
        while len(self._known) > 1 and (size > self._budget or len(self._known) > most):
            owner = max(files, key=sizes.__getitem__)
            file = files[owner].popleft()
            self._changed.add(file.module)
            known = self._known.pop(file)
            program = known.program
            self._forgotten[file] = self._clock()
            if len(self._forgotten) > _REMEMBERED:
                self._forgotten.popitem(last=False)
            if program is not None:
                users[program.number] -= 1
            last = program is not None and not users[program.number]
            if program is not None and last:
                self._programs.pop(program.identity, None)
            freed = _state_bytes(known, with_program=last)
            size -= freed
            sizes[owner] -= freed
            if not files[owner]:
                del files[owner]
        if size > self._budget:
            for known in self._known.values():
                known.frames.clear()


def _device(file: MappedFile) -> tuple[int, int, int]:
    """The unit that may stop answering: one file on a disk, or a whole filesystem without a block device (network,
    FUSE, overlay)."""
    return file.key.major, file.key.minor, file.key.inode if file.key.major else 0


def _state_bytes(known: _FileState, *, with_program: bool) -> int:
    table = known.program.nbytes if known.program is not None and with_program else 0
    return len(known.frames) * _FRAME_BYTES + table + _STATE_BYTES


# Everything below runs in the queue's thread.


def _opened(reader: FileReader, host: Host, views: Views) -> HeldFile:
    """The mapped file. Raises FileRefused when no process makes it reachable."""
    found = reader.open_mapped(host, views)
    if found is None:
        raise FileRefused(NOT_ELF)
    return found


def _load(reader: FileReader, file: HeldFile, roots: list[str], offsets: list[int]) -> _Loaded:
    request = {"kind": "program", "offsets": offsets}
    reply = reader.ask(request, [file], keep=True)
    debug = _debug_files(reader, reply, file, roots)
    if debug:
        reply = reader.ask(request, [file, *debug])
    program, number = unpack_program(reply)
    if number > len(debug):
        raise BadReply("the number of the source")
    source = debug[number - 1] if number else file
    program.identity, program.source = file.identity, source.identity
    program.source_at = source.root, source.path
    loaded = _Loaded(program)
    if "outline" in reply:
        loaded.outlines = unpack_outlines(reply)
    loaded.names = _indexed_names(reply, program)
    return loaded


def _indexed_names(reply: Arrays, program: Program) -> dict[int, bytes]:
    indexes = column(reply, "indexes", np.uint64).tolist()
    names = pieces(reply, "lengths", "content")
    if len(indexes) != len(names) or not all(program.has_name(index) for index in indexes):
        raise BadReply("the names of functions")
    return dict(zip(indexes, names, strict=True))


def _debug_files(reader: FileReader, reply: Arrays, file: HeldFile, roots: list[str]) -> list[HeldFile]:
    """The installed debug files of a stripped file; the parser decides which of them matches."""
    build_id = column(reply, "build_id", np.uint8).tobytes()
    link = os.fsdecode(column(reply, "link", np.uint8).tobytes())
    if not 4 <= len(build_id) <= _MAX_BUILD_ID:
        return []
    places = [
        (root, path)
        for root in dict.fromkeys((file.root or roots[0], ""))
        for path in _debug_paths(build_id.hex(), file.path if root == file.root else "", link)
    ]
    return [each for each in reader.open_regular(places) if each is not None]


def _debug_paths(build_id: str, path: str, link: str) -> list[str]:
    paths = [f"/usr/lib/debug/.build-id/{build_id[:2]}/{build_id[2:]}.debug"]
    if link and "/" not in link and path:
        inside = path.rpartition("/")[0]
        paths += [f"/usr/lib/debug{inside}/{link}", f"{inside}/.debug/{link}"]
    return paths


def _named(file: MappedFile, program: Program, index: int, name: bytes) -> Frame:
    return make_frame(USER, file.module, readable(name)) if name else _nameless(file, program.start(index))


def _nameless(file: MappedFile, offset: int, known: _FileState | None = None, *, deferred: bool = False) -> Frame:
    asked = known is not None and (known.asked or (known.program is not None and known.names_soon))
    deferred = deferred or (known is not None and (known.asked or known.deferred))
    return make_frame(USER, file.module, f"{file.base}+0x{offset:x}", deferred=deferred, patience=_PATIENCE * asked)
