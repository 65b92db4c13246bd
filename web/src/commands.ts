/** Commands for a terminal: what the page cannot do itself, as it only reads. Pure. */

/** One word for a POSIX shell. */
export function quoted(text: string): string {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}

/** Puts a note on a moment (milliseconds since 1970). */
export function noteCommand(at: number, text: string): string {
  const line = text.replace(/\s+/g, " ").trim();
  return `exhume event add --at ${new Date(at).toISOString()} ${quoted(line || "what happened")}`;
}

/** Packs what is recorded around a moment (milliseconds since 1970) into a file for others. */
export function bundleCommand(at: number): string {
  return `exhume export bundle --at ${new Date(at).toISOString()} -o incident.exhume.zip`;
}

/** Whether an address of a page is reached from its own machine alone. */
export function isLoopback(host: string): boolean {
  return host === "localhost" || host.endsWith(".localhost") || host === "[::1]" || /^127(\.\d+){3}$/.test(host);
}

const BUNDLE = /\.exhume\.zip$/i;

/** Opens a dropped file: a bundle as it is, what other tools wrote after an import. */
export function openCommands(name: string): string[] {
  // A name that begins with a dash would be taken for an option.
  const file = quoted(name.startsWith("-") ? `./${name}` : name);
  if (BUNDLE.test(name)) return [`exhume serve --dir ${file}`];
  return [`exhume import ${file} --dir imported`, "exhume serve --dir imported"];
}
