/** One meaning per colour, everywhere; the same hues as the terminal and the files (Okabe and Ito). */
import { computed, signal } from "@preact/signals";

export interface StateColour {
  name: string;
  hue: string;
  meaning: string;
}

export const STATES: readonly StateColour[] = [
  { name: "system", hue: "#d55e00", meaning: "kernel code" },
  { name: "softirq", hue: "#cc79a7", meaning: "interrupts and softirqs" },
  { name: "user", hue: "#56b4e9", meaning: "programs" },
  { name: "steal", hue: "#f0e442", meaning: "taken by the hypervisor" },
  { name: "iowait", hue: "#009e73", meaning: "idle, with I/O outstanding" },
  { name: "wait", hue: "#e69f00", meaning: "tasks that waited for the core" },
];

/** A difference: orange grew, blue shrank. */
export const GREW = "#d55e00";
export const SHRANK = "#0072b2";

export type Rgb = readonly [number, number, number];

export interface Theme {
  dark: boolean;
  /** Behind everything. */
  page: Rgb;
  /** Behind lanes; the colour of a cell in which nothing happened. */
  ground: Rgb;
  /** Text and painted frames. */
  ink: Rgb;
  muted: string;
  line: string;
  hatch: string;
  accent: string;
  unchanged: string;
}

export const LIGHT: Theme = {
  dark: false,
  page: [255, 255, 255],
  ground: [243, 244, 246],
  ink: [22, 25, 31],
  muted: "#565d69",
  line: "#d5d9e0",
  hatch: "#a9b0bc",
  accent: "#0b5cad",
  unchanged: "#d8d8d4",
};

export const DARK: Theme = {
  dark: true,
  page: [20, 22, 27],
  ground: [30, 33, 40],
  ink: [240, 242, 246],
  muted: "#a3abb8",
  line: "#3a404b",
  hatch: "#565f6d",
  accent: "#9dc3ff",
  unchanged: "#50545c",
};

const prefersDark = signal(false);

/** What canvases draw with; style sheets have the same by `prefers-color-scheme`. */
export const theme = computed<Theme>(() => (prefersDark.value ? DARK : LIGHT));

export function startTheme(): void {
  const query = window.matchMedia("(prefers-color-scheme: dark)");
  prefersDark.value = query.matches;
  query.addEventListener("change", (event) => {
    prefersDark.value = event.matches;
  });
}

export function rgb(hue: string): Rgb {
  return [1, 3, 5].map((at) => parseInt(hue.slice(at, at + 2), 16)) as unknown as Rgb;
}

export function hueOf(state: string): string {
  if (state === "irq") return hueOf("softirq");
  return STATES.find((each) => each.name === state)?.hue ?? "#8a8f98";
}

/** The colour that lies `amount` (0 to 1) of the way from one to the other. */
export function blend(from: Rgb, to: Rgb, amount: number): Rgb {
  const share = Math.min(Math.max(amount, 0), 1);
  return [0, 1, 2].map((i) => Math.round(from[i] + (to[i] - from[i]) * share)) as unknown as Rgb;
}

export function css([red, green, blue]: Rgb, alpha = 1): string {
  return alpha === 1 ? `rgb(${red} ${green} ${blue})` : `rgb(${red} ${green} ${blue} / ${alpha})`;
}
