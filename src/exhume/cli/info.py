"""exhume info: what a recording holds, what it lost and what it cost."""

from exhume.cli.options import NO_DIR, Dir, Json, Utc


def info(*, directory: Dir = NO_DIR, as_json: Json = False, utc: Utc = False) -> None:
    """Tell what a recording holds, lost and cost."""
    from exhume.cli.looking import Look, directory_words
    from exhume.cli.speaking import patience, suggest
    from exhume.present.events_view import visible
    from exhume.present.info_view import info_json, info_lines

    look = Look.into(directory, utc)
    with patience("reading the recording"):
        found = look.recording.info()
    live = any(not segment.sealed for segment in look.recording.segments)
    if as_json:
        import json

        print(json.dumps(info_json(found, live, look.zone)))
        return
    for what, value in info_lines(found, live, look.zone):
        print(f"{what:<10} {visible(value)}")
    suggest(f"exhume cores{directory_words(look.recording.directory)}")
