/** Asking the gateway. Every failure is a `Problem`, whose `detail` is a sentence for a person. */

import type { Session } from "./contracts";
import { t } from "./i18n";

export class Problem extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    detail: string,
    readonly fields: Record<string, unknown> = {},
  ) {
    super(detail);
  }
}

let csrfToken = "";
let account = "";
let onSignedOut: () => void = () => undefined;

export function began(session: Session): void {
  csrfToken = session.csrf_token;
  account = session.account.id;
}

/** Somebody signed in anew in another window. The same person goes on here; for another one everything is another. */
async function beganElsewhere(): Promise<boolean> {
  const session = await ask<Session>("/api/auth/session");
  if (session.account.id !== account) {
    location.reload();
    return false;
  }
  began(session);
  return true;
}

/** What to do when the session has ended. */
export function whenSignedOut(callback: () => void): void {
  onSignedOut = callback;
}

export interface Options { method?: string; body?: unknown; headers?: Record<string, string>; signal?: AbortSignal }

/** The raw answer, where it is a success. */
export async function send(path: string, options: Options = {}): Promise<Response> {
  const response = await sent(path, options);
  if (response.ok) return response;
  const problem = await problemOf(response, path);
  if (problem.code !== "csrf_rejected" || !(await beganElsewhere())) throw problem;
  const again = await sent(path, options);
  if (again.ok) return again;
  throw await problemOf(again, path);
}

async function sent(path: string, { method = "GET", body, headers = {}, signal }: Options): Promise<Response> {
  const all: Record<string, string> = { Accept: "application/json, text/event-stream", ...headers };
  if (method !== "GET") all["X-CSRF-Token"] = csrfToken;
  if (body !== undefined) all["Content-Type"] = "application/json";
  try {
    const init: RequestInit = { method, headers: all, credentials: "same-origin", cache: "no-store" };
    if (body !== undefined) init.body = JSON.stringify(body);
    if (signal) init.signal = signal;
    return await fetch(path, init);
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Problem(0, "unreachable", t("error.unreachable"));
  }
}

async function problemOf(response: Response, path: string): Promise<Problem> {
  const fields = (await response.json().catch(() => ({}))) as Record<string, unknown>;
  const problem = new Problem(response.status, String(fields["code"] ?? "unknown"), String(fields["detail"] ?? response.statusText), fields);
  if (response.status === 401 && !path.startsWith("/api/auth/")) onSignedOut();
  return problem;
}

/** The answer as JSON. */
export async function ask<T>(path: string, options: Options = {}): Promise<T> {
  const response = await send(path, options);
  return (response.status === 204 || response.status === 202 ? undefined : await response.json()) as T;
}

/** A note's address: each segment of its path encoded once. */
export function noteAddress(workspace: string, path: string, action = ""): string {
  return `/api/workspaces/${workspace}/notes/${path.split("/").map(encodeURIComponent).join("/")}${action}`;
}

/** The sentence to show for any failure. */
export function said(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
