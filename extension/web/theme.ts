/** Light, dark, or as the system is. */

const KEY = "etude.theme";

export type Theme = "auto" | "light" | "dark";

const ORDER: Theme[] = ["auto", "light", "dark"];

export function theme(): Theme {
  const kept = localStorage.getItem(KEY);
  return ORDER.find((name) => name === kept) ?? "auto";
}

/** Run before the first paint, so that the page does not flash. */
export function applyTheme(): void {
  document.documentElement.dataset["theme"] = theme();
}

export function nextTheme(): Theme {
  const next = ORDER[(ORDER.indexOf(theme()) + 1) % ORDER.length] ?? "auto";
  localStorage.setItem(KEY, next);
  applyTheme();
  return next;
}
