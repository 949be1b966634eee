/** Line icons on a 16-unit grid, drawn in the colour of the text. */

const NAMESPACE = "http://www.w3.org/2000/svg";

const PATHS = {
  send: "M8 13V3.5M3.75 7.5 8 3.25l4.25 4.25",
  stop: "M4.5 4.5h7v7h-7z",
  plus: "M8 3v10M3 8h10",
  menu: "M2.5 4.5h11M2.5 8h11M2.5 11.5h11",
  close: "m4 4 8 8M12 4l-8 8",
  trash: "M3 4.5h10M6.5 4.5V3h3v1.5M4.5 4.5l.5 8.5h6l.5-8.5",
  sun: "M8 5.25a2.75 2.75 0 1 0 0 5.5 2.75 2.75 0 0 0 0-5.5ZM8 1.5v1.25M8 13.25v1.25M1.5 8h1.25M13.25 8h1.25M3.4 3.4l.9.9M11.7 11.7l.9.9M3.4 12.6l.9-.9M11.7 4.3l.9-.9",
  moon: "M13 9.6A5.5 5.5 0 0 1 6.4 3a5.5 5.5 0 1 0 6.6 6.6Z",
  auto: "M8 2.5a5.5 5.5 0 1 0 0 11ZM8 2.5a5.5 5.5 0 0 1 0 11",
  help: "M5.75 6a2.25 2.25 0 1 1 3.3 2c-.7.4-1.05.8-1.05 1.5M8 12.2v.3",
  copy: "M5.5 5.5V3h7.5v7.5h-2.5M3 5.5h7.5V13H3z",
  check: "m3.5 8.5 3 3 6-7",
  down: "M8 3v9.5M3.75 8.5 8 12.75l4.25-4.25",
  chevron: "m6 4 4 4-4 4",
  execute: "m3 4.5 3.5 3.5L3 11.5M8 12h5",
  edit: "m3 13 .6-2.9 7-7a1.2 1.2 0 0 1 1.7 0l.6.6a1.2 1.2 0 0 1 0 1.7l-7 7Z",
  read: "M4 2.5h5l3 3v8H4zM9 2.5v3h3M6 8.5h4M6 11h4",
  search: "M7 3a4 4 0 1 0 0 8 4 4 0 0 0 0-8ZM10 10l3.5 3.5",
  think: "M8 2.5a4 4 0 0 0-2.3 7.3c.5.4.8.9.8 1.5h3c0-.6.3-1.1.8-1.5A4 4 0 0 0 8 2.5ZM6.75 13.5h2.5",
  move: "M2.5 5.5h9M9 2.75l2.75 2.75L9 8.25M13.5 11h-9M7 8.25 4.25 11 7 13.75",
  diagnose: "M1.75 8.5h3l1.75-5 3 9.5 1.75-4.5h3",
  plug: "M5.5 2.5v3M10.5 2.5v3M4 5.5h8v2.25a4 4 0 0 1-8 0ZM8 11.75v2",
  outline: "M2.5 3.5h7M5.5 8h8M5.5 12.5h6M2.5 3.5V12.5h1.500M2.5 8h1.5",
  other: "M8 3.5v9M3.5 8h9M5 5l6 6M11 5l-6 6",
  list: "m2.5 4.5 1 1 1.75-2M7.5 4.75h6M2.5 10.5l1 1 1.75-2M7.5 10.75h6",
  folder: "M2.5 4h4l1.25 1.5h5.75v7h-11z",
} as const;

export type IconName = keyof typeof PATHS;

export function icon(name: IconName): SVGSVGElement {
  return drawing(PATHS[name], "0 0 16 16", "icon");
}

/** The mark of Etude: a staff, and two notes that climb on it. */
export function mark(): SVGSVGElement {
  const svg = drawing("M2 6.5h28M2 11.5h28M2 16.5h28M2 21.5h28M2 26.5h28", "0 0 32 32", "brand-mark");
  svg.append(path("M12 22.5V9.5L24 5.8v11", "brand-phrase"), path(HEADS, "brand-heads"));
  return svg;
}

/** Two slanted ellipses. */
const HEADS =
  "M12.3 21.600c.5 1.400-.7 3-2.600 3.700s-3.900.100-4.400-1.300.7-3 2.600-3.700 3.900-.1 4.400 1.300Zm12-5.300c.5 1.400-.7 3-2.600 3.700s-3.900.1-4.400-1.300.7-3 2.600-3.700 3.900-.1 4.400 1.300Z";

function path(d: string, className: string): SVGPathElement {
  const element = document.createElementNS(NAMESPACE, "path");
  element.setAttribute("d", d);
  element.setAttribute("class", className);
  return element;
}

function drawing(line: string, box: string, className: string): SVGSVGElement {
  const svg = document.createElementNS(NAMESPACE, "svg");
  svg.setAttribute("viewBox", box);
  svg.setAttribute("class", className);
  svg.setAttribute("aria-hidden", "true");
  svg.append(path(line, ""));
  return svg;
}
