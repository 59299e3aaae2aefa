/** Making elements without a framework. Text is always text: nothing here reads HTML. */

export type Child = Node | string | null | undefined | false;
type Handler = (event: never) => unknown;
type Work = (event: MouseEvent) => unknown;
export type Props = Record<string, string | number | boolean | null | undefined | Handler>;

function apply(element: Element, props: Props, children: Child[]): void {
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") element.addEventListener(name.slice(2), value as unknown as EventListener);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children) if (child) element.append(child);
}

/** An HTML element; `onclick` and the like are listeners, everything else is an attribute. */
export function h<K extends keyof HTMLElementTagNameMap>(tag: K, props: Props = {}, ...children: Child[]): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  apply(element, props, children);
  return element;
}

/** An SVG element. */
export function svg(tag: string, props: Props = {}, ...children: Child[]): SVGElement {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  apply(element, props, children);
  return element;
}

const PATHS = {
  plus: "M12 5v14M5 12h14",
  send: "M12 19V5M6 11l6-6 6 6",
  stop: "M7 7h10v10H7z",
  copy: "M9 9h11v11H9zM5 15H4V4h11v1",
  again: "M20 11a8 8 0 1 0-2.3 6M20 5v6h-6",
  edit: "M4 20h4L19 9l-4-4L4 16zM13.5 6.5l4 4",
  save: "M6 4h12v16l-6-4-6 4z",
  left: "M14 6l-6 6 6 6",
  right: "M10 6l6 6-6 6",
  close: "M6 6l12 12M18 6L6 18",
  menu: "M4 7h16M4 12h16M4 17h16",
  note: "M6 3h9l4 4v14H6zM14 3v5h5M9 13h7M9 17h5",
  settings: "M4 8h9M17 8h3M4 16h3M11 16h9M15 6v4M9 14v4",
  trash: "M5 7h14M9 7V4h6v3M7 7l1 13h8l1-13",
  down: "M6 10l6 6 6-6",
  chart: "M5 20V10M12 20V4M19 20v-7",
} as const;
export type IconName = keyof typeof PATHS;

/** A picture that says nothing by itself; its button has the name. */
export function icon(name: IconName): SVGElement {
  return svg("svg", { viewBox: "0 0 24 24", class: "icon", "aria-hidden": "true" }, svg("path", { d: PATHS[name] }));
}

/** A button that shows a picture, with a name for those who cannot see it. */
export function iconButton(name: IconName, label: string, work: Work, props: Props = {}): HTMLButtonElement {
  return h("button", { type: "button", class: "icon-button", "aria-label": label, title: label, onclick: oneAtATime(work), ...props }, icon(name));
}

export function button(label: string, work: Work, props: Props = {}): HTMLButtonElement {
  return h("button", { type: "button", class: "button", onclick: oneAtATime(work), ...props }, label);
}

/** Whoever clicks twice wants it once: while the work goes on, another event does nothing. What fails is left unhandled, and told by the shell. */
function oneAtATime<E extends Event>(work: (event: E) => unknown): (event: E) => void {
  let busy = false;
  return (event) => {
    if (busy) return;
    const done = work(event);
    if (!(done instanceof Promise)) return;
    busy = true;
    void done.finally(() => (busy = false));
  };
}

/** A form that is sent once at a time, and says by itself why it failed. */
export function form(props: Props, submit: (form: HTMLFormElement) => Promise<unknown>, ...children: Child[]): HTMLFormElement {
  const problem = h("p", { class: "problem", role: "alert", hidden: true });
  const send = oneAtATime(async () => {
    problem.hidden = true;
    try {
      await submit(element);
    } catch (error) {
      problem.textContent = error instanceof Error ? error.message : String(error);
      problem.hidden = false;
    }
  });
  const onsubmit = (event: Event): void => {
    event.preventDefault();
    send(event);
  };
  const element: HTMLFormElement = h("form", { onsubmit, ...props }, ...children, problem);
  return element;
}

/** A labelled field of a form. */
export function field(label: string, control: HTMLElement, hint?: string): HTMLLabelElement {
  return h("label", { class: "field" }, h("span", { class: "field-label" }, label), control, hint && h("span", { class: "field-hint" }, hint));
}

/** A modal dialog over everything; gone from the page when it closes. */
export function dialog(title: string, ...children: Child[]): HTMLDialogElement {
  const shown: HTMLDialogElement = h(
    "dialog",
    { class: "dialog", "aria-label": title, onclose: () => shown.remove(), onclick: (event: MouseEvent) => event.target === shown && shown.close() },
    h("div", { class: "dialog-body" }, h("h2", {}, title), ...children),
  );
  document.body.append(shown);
  shown.showModal();
  return shown;
}

/** Whether the key is for the input method, which composes characters; Safari tells the last one by its code alone. */
export function isComposing(event: KeyboardEvent): boolean {
  return event.isComposing || event.keyCode === 229;
}

/** The next time something can be shown. */
export function nextFrame(): Promise<void> {
  return new Promise((resolve) => {
    // A window in the background gets no frames; it goes on all the same.
    const timer = setTimeout(done, 100);
    const frame = requestAnimationFrame(done);
    function done(): void {
      clearTimeout(timer);
      cancelAnimationFrame(frame);
      resolve();
    }
  });
}

const seen = new WeakMap<object, string>();

/** Whether `value` is what was given for this place the last time; remembers it. */
export function reused(place: object, value: unknown): boolean {
  const now = JSON.stringify(value);
  const same = seen.get(place) === now;
  seen.set(place, now);
  return same;
}
