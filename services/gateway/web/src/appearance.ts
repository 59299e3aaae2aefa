/** How things look in this browser: theme and code. Kept here, since another machine's screen is another matter. */

export interface Appearance { theme: "system" | "light" | "dark"; codeSize: number; codeLines: boolean; codeWrap: boolean }

const KEY = "marginalia.appearance";
const DEFAULT: Appearance = { theme: "system", codeSize: 13, codeLines: true, codeWrap: false };

export function appearance(): Appearance {
  try {
    return { ...DEFAULT, ...(JSON.parse(localStorage.getItem(KEY) ?? "{}") as Partial<Appearance>) };
  } catch {
    return DEFAULT;
  }
}

export function setAppearance(change: Partial<Appearance>): void {
  localStorage.setItem(KEY, JSON.stringify({ ...appearance(), ...change }));
  applyAppearance();
}

export function applyAppearance(): void {
  const { theme, codeSize, codeLines, codeWrap } = appearance();
  const root = document.documentElement;
  root.dataset["theme"] = theme;
  root.dataset["codeLines"] = String(codeLines);
  root.dataset["codeWrap"] = String(codeWrap);
  root.style.setProperty("--code-size", `${codeSize}px`);
}

export function isDark(): boolean {
  const { theme } = appearance();
  return theme === "dark" || (theme === "system" && matchMedia("(prefers-color-scheme: dark)").matches);
}
