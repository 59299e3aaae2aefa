/** Whoever works by keyboard keeps the place when a message is replaced by another version of it. */

interface Place { button: string; article: string; index: number }

export class LostFocus {
  private lost: Place | null = null;

  constructor(private readonly log: HTMLElement, private readonly otherwise: () => void) {}

  /** Before messages may be replaced. */
  note(): void {
    const focused = document.activeElement;
    if (!(focused instanceof HTMLElement) || focused === document.body) return;
    const article = focused.closest("article");
    const named = focused.ariaLabel ?? "";
    this.lost = article && this.log.contains(article) && named ? { button: named, article: article.ariaLabel ?? "", index: this.indexOf(article) } : null;
  }

  /** After they were. While an answer is being written its buttons are not there yet. */
  giveBack(running: boolean): void {
    if (!this.lost || document.activeElement !== document.body) return;
    const { button, article, index } = this.lost;
    const found = this.log.querySelectorAll("article")[index];
    const buttons = found?.ariaLabel === article ? [...found.querySelectorAll<HTMLButtonElement>("button:enabled")] : [];
    const same = buttons.find((one) => one.ariaLabel === button) ?? buttons.find((one) => one.closest(".versions"));
    if (same) same.focus();
    else if (!running) this.otherwise();
    if (same || !running) this.lost = null;
  }

  private indexOf(article: Element): number {
    return [...this.log.querySelectorAll("article")].indexOf(article as HTMLElement);
  }
}
