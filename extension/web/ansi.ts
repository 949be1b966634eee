/** Terminal output as runs of styled text: SGR colours become classes, other control sequences are dropped. */

export interface Run {
  text: string;
  /** Class names, space-separated; empty for plain text. */
  classes: string;
}

// OSC (to BEL or ST), CSI, two-character escapes, and controls other than tab and line feed.
// eslint-disable-next-line no-control-regex
const SEQUENCE = /\u001b\][^\u0007\u001b]*(?:\u0007|\u001b\\)?|\u001b\[([0-9;:]*)([ -/]*[@-~])|\u001b[ -/]*[0-~]|[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f]/g;

const COLORS = ["black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"];

interface Style {
  bold: boolean;
  dim: boolean;
  italic: boolean;
  underline: boolean;
  color: string;
}

const PLAIN: Style = { bold: false, dim: false, italic: false, underline: false, color: "" };

/** Split output into runs. A carriage return goes back to the start of its line, as a terminal does. */
export function parseAnsi(output: string): Run[] {
  const runs: Run[] = [];
  let style = PLAIN;
  let last = 0;
  const content = overwrite(output);
  for (const match of content.matchAll(SEQUENCE)) {
    push(runs, content.slice(last, match.index), style);
    last = match.index + match[0].length;
    if (match[2] === "m") style = restyle(style, match[1] ?? "");
  }
  push(runs, content.slice(last), style);
  return runs;
}

/** Progress bars redraw their line with carriage returns: only the last drawing stays. */
function overwrite(output: string): string {
  if (!output.includes("\r")) return output;
  const lines = output.replaceAll("\r\n", "\n").split("\n");
  return lines
    .map((line) => {
      const drawings = line.split("\r");
      return drawings.findLast((drawing) => drawing !== "") ?? "";
    })
    .join("\n");
}

function push(runs: Run[], content: string, style: Style): void {
  if (content === "") return;
  const classes = classesOf(style);
  const previous = runs.at(-1);
  if (previous?.classes === classes) previous.text += content;
  else runs.push({ text: content, classes });
}

function classesOf(style: Style): string {
  return [
    style.bold ? "ansi-bold" : "",
    style.dim ? "ansi-dim" : "",
    style.italic ? "ansi-italic" : "",
    style.underline ? "ansi-underline" : "",
    style.color === "" ? "" : `ansi-${style.color}`,
  ]
    .filter(Boolean)
    .join(" ");
}

function restyle(from: Style, parameters: string): Style {
  const codes = parameters.split(/[;:]/).map(Number);
  let style = from;
  for (let index = 0; index < codes.length; index += 1) {
    const code = codes[index] ?? 0;
    if (code === 0) style = PLAIN;
    else if (code === 1) style = { ...style, bold: true };
    else if (code === 2) style = { ...style, dim: true };
    else if (code === 3) style = { ...style, italic: true };
    else if (code === 4) style = { ...style, underline: true };
    else if (code === 22) style = { ...style, bold: false, dim: false };
    else if (code === 23) style = { ...style, italic: false };
    else if (code === 24) style = { ...style, underline: false };
    else if (code === 39) style = { ...style, color: "" };
    else if (code >= 30 && code <= 37) style = { ...style, color: COLORS[code - 30] ?? "" };
    else if (code >= 90 && code <= 97) style = { ...style, color: COLORS[code - 90] ?? "" };
    else if (code === 38 || code === 48) {
      // 256 and true colours: the palette of the page has sixteen, so only the low ones are kept.
      const indexed = codes[index + 1] === 5;
      const color = indexed ? COLORS[(codes[index + 2] ?? 0) % 8] : "";
      if (code === 38 && indexed && (codes[index + 2] ?? 99) < 16) style = { ...style, color: color ?? "" };
      index += indexed ? 2 : 4;
    }
  }
  return style;
}
