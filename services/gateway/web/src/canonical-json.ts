/** RFC 8785: one sequence of bytes for one value. ECMAScript's own `JSON.stringify` writes strings and numbers as it asks for. */

export function canonical(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(canonical).join(",")}]`;
  if (value === null || typeof value !== "object") return JSON.stringify(value);
  const object = value as Record<string, unknown>;
  const members = Object.keys(object).sort().map((key) => `${JSON.stringify(key)}:${canonical(object[key])}`);
  return `{${members.join(",")}}`;
}

/** SHA-256 hex of a text in UTF-8. Browsers have it in a secure context only: https, or this machine itself. */
export async function sha256(text: string): Promise<string> {
  const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(text));
  return [...new Uint8Array(digest)].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}
