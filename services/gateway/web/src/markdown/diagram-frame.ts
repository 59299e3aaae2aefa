/** The page of the frame in which Mermaid draws. It has no origin, no network and no cookies, and answers with text. */

import mermaid, { type MermaidConfig } from "mermaid";

interface Asked { id: number; source: string; dark: boolean }

/** A diagram's source may set much by itself, but none of `secure`; labels are text, so that none of them brings a picture along. */
const SETTINGS: MermaidConfig = {
  startOnLoad: false,
  securityLevel: "strict",
  htmlLabels: false,
  flowchart: { htmlLabels: false },
  fontFamily: "system-ui, sans-serif",
  suppressErrorRendering: true,
  dompurifyConfig: { FORBID_TAGS: ["img", "image", "style", "iframe", "video", "audio"] },
  secure: ["secure", "securityLevel", "startOnLoad", "maxTextSize", "maxEdges", "suppressErrorRendering", "htmlLabels", "dompurifyConfig", "themeCSS"],
};

let last: Promise<void> = Promise.resolve();

async function draw({ id, source, dark }: Asked): Promise<void> {
  mermaid.initialize({ ...SETTINGS, theme: dark ? "dark" : "neutral" });
  try {
    const { svg } = await mermaid.render(`diagram-${id}`, source);
    parent.postMessage({ id, ...withoutStyles(svg) }, "*");
  } catch (error) {
    parent.postMessage({ id, error: error instanceof Error ? error.message : String(error) }, "*");
  }
}

/** The client's page allows no styles in markup: its sheet is handed over by itself, what single elements have as data. */
function withoutStyles(markup: string): { svg: string; sheet: string } {
  const holder = document.createElement("template");
  holder.innerHTML = markup;
  const sheets = [...holder.content.querySelectorAll("style")].map((style) => {
    style.remove();
    return style.textContent ?? "";
  });
  for (const element of holder.content.querySelectorAll("[style]")) {
    element.setAttribute("data-style", element.getAttribute("style")!);
    element.removeAttribute("style");
  }
  return { svg: holder.innerHTML, sheet: sheets.join("\n") };
}

window.addEventListener("message", (event: MessageEvent<Asked>) => {
  if (event.source === parent) last = last.then(() => draw(event.data)); // Mermaid draws one at a time
});
parent.postMessage({ ready: true }, "*");
