/** Colours for code; loaded with the first code block that has a language. */

import DOMPurify from "dompurify";
import hljs from "highlight.js/lib/common";

/** The source with its parts marked; null where the language is unknown. */
export function highlighted(source: string, language: string): DocumentFragment | null {
  if (!hljs.getLanguage(language)) return null;
  const { value } = hljs.highlight(source, { language, ignoreIllegals: true });
  return DOMPurify.sanitize(value, { ALLOWED_TAGS: ["span"], ALLOWED_ATTR: ["class"], RETURN_DOM_FRAGMENT: true }) as unknown as DocumentFragment;
}
