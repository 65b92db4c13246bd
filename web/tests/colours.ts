/** How different colours are, and how people see them who lack a kind of cone. */
import type { Rgb } from "../src/theme";

type Matrix = readonly [Rgb, Rgb, Rgb];

/**
 * Machado, Oliveira and Fernandes, "A Physiologically-based Model for Simulation of Color Vision Deficiency" (2009),
 * severity 1.0; they act on linear light.
 */
export const DEFICIENCIES: Record<string, Matrix> = {
  protanopia: [
    [0.152286, 1.052583, -0.204868],
    [0.114503, 0.786281, 0.099216],
    [-0.003882, -0.048116, 1.051998],
  ],
  deuteranopia: [
    [0.367322, 0.860646, -0.227968],
    [0.280085, 0.672501, 0.047413],
    [-0.01182, 0.04294, 0.968881],
  ],
  tritanopia: [
    [1.255528, -0.076749, -0.178779],
    [-0.078411, 0.930809, 0.147602],
    [0.004733, 0.691367, 0.3039],
  ],
};

function linear(value: number): number {
  const share = value / 255;
  return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
}

function encoded(share: number): number {
  const held = Math.min(1, Math.max(0, share));
  return 255 * (held <= 0.0031308 ? held * 12.92 : 1.055 * held ** (1 / 2.4) - 0.055);
}

export function seenWith(colour: Rgb, matrix: Matrix): Rgb {
  const light = colour.map(linear);
  return matrix.map((row) => encoded(row[0] * light[0] + row[1] * light[1] + row[2] * light[2])) as unknown as Rgb;
}

/** CIE L*a*b* under D65. */
export function lab(colour: Rgb): Rgb {
  const [red, green, blue] = colour.map(linear);
  const f = (value: number): number =>
    value > 216 / 24389 ? Math.cbrt(value) : (24389 / 27) * (value / 116) + 16 / 116;
  const x = f((0.4124564 * red + 0.3575761 * green + 0.1804375 * blue) / 0.95047);
  const y = f(0.2126729 * red + 0.7151522 * green + 0.072175 * blue);
  const z = f((0.0193339 * red + 0.119192 * green + 0.9503041 * blue) / 1.08883);
  return [116 * y - 16, 500 * (x - y), 200 * (y - z)];
}

/** CIE76: about 2.3 is the least that people notice side by side. */
export function distance(one: Rgb, other: Rgb): number {
  const [a, b] = [lab(one), lab(other)];
  return Math.hypot(a[0] - b[0], a[1] - b[1], a[2] - b[2]);
}

/** The ratio that WCAG asks for: 4.5 for text, 3 for what else has to be seen. */
export function contrast(one: Rgb, other: Rgb): number {
  const light = ([red, green, blue]: Rgb): number =>
    0.2126 * linear(red) + 0.7152 * linear(green) + 0.0722 * linear(blue);
  const [low, high] = [light(one), light(other)].sort((a, b) => a - b);
  return (high + 0.05) / (low + 0.05);
}
