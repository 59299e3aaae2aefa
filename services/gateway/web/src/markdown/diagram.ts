/** Diagrams: drawn in a frame that can do nothing else, cleaned here, and shown in a shadow root with their own style sheet. */

import DOMPurify from "dompurify";
import { h } from "../dom";
import { t } from "../i18n";
import { isDark } from "../appearance";

interface Answer { ready?: true; id: number; svg?: string; sheet?: string; error?: string }

const DRAWING_MS_MAX = 20_000;
const waiting = new Map<number, (answer: Answer) => void>();
let frame: Promise<Window> | null = null;
let count = 0;

function opened(): Promise<Window> {
  frame ??= new Promise((resolve) => {
    const element = h("iframe", { src: "/diagram.html", sandbox: "allow-scripts", class: "diagram-frame", "aria-hidden": "true", tabindex: -1, title: t("diagram.picture") });
    window.addEventListener("message", (event: MessageEvent<Answer>) => {
      if (event.source !== element.contentWindow) return;
      if (event.data.ready) resolve(element.contentWindow!);
      else waiting.get(event.data.id)?.(event.data);
    });
    document.body.append(element);
  });
  return frame;
}

/** The source as SVG text. */
async function drawn(source: string): Promise<Answer> {
  const id = (count += 1);
  return new Promise((resolve) => {
    const end = (answer: Answer): void => {
      clearTimeout(timer);
      waiting.delete(id);
      resolve(answer);
    };
    const timer = setTimeout(() => end({ id, error: t("diagram.slow") }), DRAWING_MS_MAX);
    waiting.set(id, end);
    void opened().then((target) => target.postMessage({ id, source, dark: isDark() }, "*"));
  });
}

/** Puts the picture beside the block's source and shows it. A source that is no diagram stays as it is, with what is wrong. */
export async function drawDiagram(block: HTMLElement): Promise<void> {
  const answer = await drawn(block.querySelector("code")!.textContent ?? "");
  if (answer.svg === undefined) {
    block.append(h("p", { class: "diagram-error" }, t("diagram.error", { why: (answer.error ?? "").split("\n")[0]! })));
    return;
  }
  const picture = h("div", { class: "diagram", role: "img", "aria-label": t("diagram.picture") });
  fill(picture.attachShadow({ mode: "open" }), answer.svg, answer.sheet ?? "");
  block.append(picture);
  block.querySelector<HTMLElement>("[data-action=switch]")!.click();
}

function fill(root: ShadowRoot, markup: string, rules: string): void {
  const clean = DOMPurify.sanitize(markup, {
    USE_PROFILES: { svg: true, svgFilters: true, html: true },
    ADD_TAGS: ["foreignobject"], // where Mermaid writes its labels
    HTML_INTEGRATION_POINTS: { foreignobject: true },
    FORBID_TAGS: ["style", "img", "image", "a", "form", "input", "button", "iframe", "video", "audio", "feimage"],
    RETURN_DOM_FRAGMENT: true,
  }) as unknown as DocumentFragment;
  for (const element of clean.querySelectorAll<HTMLElement | SVGElement>("[data-style]")) element.style.cssText = element.dataset["style"]!;
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(rules);
  root.adoptedStyleSheets = [sheet];
  root.append(clean);
}
