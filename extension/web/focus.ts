/** Who has the keyboard. */

/** Whether something that waits for a person may take the keyboard: not from whoever writes or is about to answer. */
export function mayTakeFocus(): boolean {
  const active = document.activeElement;
  if (active instanceof HTMLTextAreaElement && active.value !== "") return false;
  return !active?.closest(".approval, .question, select");
}
