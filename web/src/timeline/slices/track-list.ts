/** The tracks of the page: what has one, and how they are added and removed. */
import { announce } from "../../a11y";
import { revealTrack } from "../../reveal";
import { change, filters, state } from "../../state";
import { parseTrack, trackOf } from "./track-key";

const MOST_TRACKS = 8;

export function addTrack(key: string): void {
  const { tracks } = state.peek();
  const title = parseTrack(key)?.title ?? key;
  if (tracks.includes(key)) announce(`the track of ${title} is there`);
  else if (tracks.length >= MOST_TRACKS) announce(`remove a track first: there are ${MOST_TRACKS}`);
  else {
    change({ tracks: [...tracks, key] });
    window.requestAnimationFrame(revealTrack);
    announce(`added a track of ${title}`);
  }
}

export function removeTrack(key: string): void {
  change({ tracks: state.peek().tracks.filter((each) => each !== key) });
  announce(`removed the track of ${parseTrack(key)?.title ?? key}`);
}

/** Adds a track of the highlighted process, else of what the filter selects. */
export function addTrackHere(): void {
  const { marked } = state.peek();
  const key = marked === null ? trackOf(filters.peek()) : `pid:${marked}`;
  if (key === null) announce("click a slice, or filter by a process, container or pod, to add its track");
  else addTrack(key);
}
