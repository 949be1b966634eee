/** Who has the keyboard. */

/** Whether something that waits for a person may take the keyboard: not from whoever writes or is about to answer. */
export function mayTakeFocus(): boolean {
  const active = document.activeElement;
  if (active instanceof HTMLTextAreaElement && active.value !== "") return false;
  return !active?.closest(".approval, .question, select");
}

/** Make a field as tall as its text, up to a third of the window. */
export function grow(field: HTMLTextAreaElement): void {
  field.style.height = "auto";
  const height = Math.min(field.scrollHeight, Math.round(window.innerHeight / 3));
  field.style.height = `${String(height)}px`;
}
