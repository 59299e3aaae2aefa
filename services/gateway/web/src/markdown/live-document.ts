/** A Markdown text that grows, as elements that stay.
 *
 * Every block but the last is finished: it is rendered once and never touched again. The last one is rendered anew as it grows, and only what differs
 * is changed in the page, so that nothing jumps and a selection stays. How often, depends on how long it takes.
 */

import { nextFrame } from "../dom";
import { finishCode } from "./code-block";
import { type Block, blocksOf, elementsOf, environment, type RenderEnv } from "./renderer";

const SLICE_MS = 12;
const LINE_END = /\r\n?|\n/g;
const DEFINITION = /^[^\S\n>]*\[[^\]]*\]:/m;
const MARK_LIKE = /[[【](\d|cit_blk)/;

export class LiveDocument {
  private finished = "";
  private finishedNodes = 0;
  private wanted: { text: string; whole: boolean } | null = null;
  private working = false;
  private stale = false;
  private sliceBegan = 0;
  /** What the unfinished part of the page was made of. */
  private tail = "";
  private env: RenderEnv;
  /** Told after every change of what is shown. */
  onchange: () => void = () => undefined;

  constructor(
    readonly element: HTMLElement,
    private readonly options: Omit<RenderEnv, "nonce">,
  ) {
    this.env = environment(options);
  }

  /** Show this text, as soon as can be. `whole`: nothing more will come. */
  update(text: string, whole: boolean): void {
    this.wanted = { text, whole };
    if (!this.working) void this.work();
  }

  /** What can be cited from now on. */
  cite(numbers: Set<number>, legacy: Map<string, number>): void {
    const grown = [...numbers].some((number) => !this.options.numbers?.has(number));
    this.options.numbers = numbers;
    this.options.legacy = legacy;
    if (grown && MARK_LIKE.test(this.finished)) this.stale = true;
    this.env.numbers = numbers;
    this.env.legacy = legacy;
  }

  /** The numbers that the text cites so far, in the order of first citation. */
  cited(): number[] {
    return [...new Set([...this.element.querySelectorAll<HTMLElement>("[data-cite]")].map((mark) => Number(mark.dataset["cite"])))];
  }

  private async work(): Promise<void> {
    this.working = true;
    while (this.wanted) {
      const { text, whole } = this.wanted;
      this.wanted = null;
      const began = (this.sliceBegan = performance.now());
      await this.show(text, whole);
      this.onchange();
      // At most a quarter of the time is ours.
      const rest = 3 * (performance.now() - began);
      await nextFrame();
      if (this.wanted && rest > SLICE_MS) await new Promise((resolve) => setTimeout(resolve, rest));
    }
    this.working = false;
  }

  private async show(text: string, whole: boolean): Promise<void> {
    if (this.stale || !text.startsWith(this.finished)) this.restart({});
    const tail = text.slice(this.finished.length);
    if (whole) {
      if (tail === this.tail && !DEFINITION.test(tail)) this.adopt(tail);
      else await this.finish(tail);
      reconcile(this.element, [], this.finishedNodes);
      this.tail = "";
      if (Object.keys(this.env.references ?? {}).length > 0) await this.resolveReferences(text);
      return;
    }
    const blocks = this.attempt(tail);
    const last = blocks.pop();
    const end = last ? lineStart(tail, last.line) : 0;
    if (blocks.length > 0) await this.finish(tail.slice(0, end));
    else await this.pause();
    reconcile(this.element, last ? [...elementsOf(last, this.env).childNodes] : [], this.finishedNodes);
    this.tail = text.slice(this.finished.length);
  }

  /** The blocks of what may change yet: a definition that is only half there must not be remembered. */
  private attempt(tail: string): Block[] {
    return blocksOf(tail, { ...this.env, references: { ...this.env.references } });
  }

  /** What is shown already, to the letter, is finished as it is. */
  private adopt(tail: string): void {
    const nodes = [...this.element.childNodes].slice(this.finishedNodes);
    this.finishedNodes += nodes.length;
    this.finished += tail;
    for (const node of nodes) later(node);
  }

  /** Blocks that nothing can change any more; in slices, since a whole long answer may be one text of them. */
  private async finish(text: string): Promise<void> {
    const blocks = blocksOf(text, this.env);
    for (const block of blocks) {
      await this.pause();
      for (const node of [...elementsOf(block, this.env).childNodes]) {
        const old = this.element.childNodes[this.finishedNodes];
        this.finishedNodes += 1;
        if (old?.isEqualNode(node)) {
          later(old);
          continue;
        }
        if (old) old.replaceWith(node);
        else this.element.append(node);
        later(node);
      }
    }
    this.finished += text;
  }

  /** Lets the page breathe where this has worked for a while. */
  private async pause(): Promise<void> {
    if (performance.now() - this.sliceBegan < SLICE_MS) return;
    await nextFrame();
    this.sliceBegan = performance.now();
  }

  /** A definition that came after its use makes a link of it. */
  private async resolveReferences(text: string): Promise<void> {
    this.restart({ ...this.env.references });
    await this.finish(text);
    reconcile(this.element, [], this.finishedNodes);
  }

  private restart(references: Record<string, unknown>): void {
    this.stale = false;
    this.tail = "";
    this.finished = "";
    this.finishedNodes = 0;
    this.env = { ...environment(this.options), references };
  }
}

/** What is drawn once a block is finished: formulas, colours, pictures. */
function later(node: Node): void {
  if (!(node instanceof HTMLElement)) return;
  const formulas = [...(node.matches(".math") ? [node] : []), ...node.querySelectorAll<HTMLElement>(".math")];
  if (formulas.length > 0) void import("./formula").then(({ draw }) => formulas.forEach(draw));
  void finishCode(node, (block) => void import("./diagram").then(({ drawDiagram }) => drawDiagram(block)));
}

/** Where in the text a line begins. */
function lineStart(text: string, line: number): number {
  if (line === 0) return 0;
  LINE_END.lastIndex = 0;
  for (let index = 0; index < line; index += 1) if (!LINE_END.exec(text)) return text.length;
  return LINE_END.lastIndex;
}

/** Makes the children of `parent` from the `from`th on these, changing as little as can be. */
export function reconcile(parent: Node, wanted: Node[], from = 0): void {
  let old: ChildNode | null = parent.childNodes[from] ?? null;
  for (const node of wanted) {
    const next: ChildNode | null = old?.nextSibling ?? null;
    if (!old) parent.appendChild(node);
    else if (!old.isEqualNode(node)) becomes(parent, old, node);
    old = next;
  }
  while (old) {
    const next: ChildNode | null = old.nextSibling;
    old.remove();
    old = next;
  }
}

function becomes(parent: Node, old: ChildNode, node: Node): void {
  if (old instanceof Text && node instanceof Text) {
    if (node.data.startsWith(old.data)) old.appendData(node.data.slice(old.data.length));
    else old.data = node.data;
  } else if (old instanceof Element && node instanceof Element && old.tagName === node.tagName) {
    for (const { name } of [...old.attributes]) if (!node.hasAttribute(name)) old.removeAttribute(name);
    for (const { name, value } of [...node.attributes]) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
    reconcile(old, [...node.childNodes]);
  } else parent.replaceChild(node, old);
}
