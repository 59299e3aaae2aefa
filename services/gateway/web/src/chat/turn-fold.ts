/** A turn's events, folded into the message they amount to; the same as the agent's own fold, which a reload shows. */

import type { Activity, Approval, Injected, LeftOut, Message, MessageStatus, Source, ToolCall, TurnEvent, Usage } from "../contracts";

export interface Said { code: string; message: string; retriable?: boolean }

/** A reply in the making. `status` is the turn's: `cancelled` is what a stored message calls `interrupted`. */
export interface Reply {
  turnId: string;
  conversationId: string;
  userMessageId: string;
  responseId: string;
  model: string;
  lastSeq: number;
  content: string;
  activity: Activity[];
  toolCalls: ToolCall[];
  sources: Source[];
  leftOut: LeftOut[];
  injected: Injected[];
  notices: Said[];
  error: Said | null;
  usage: Usage | null;
  status: MessageStatus;
  cited: number[] | null;
}

export function newReply(): Reply {
  return {
    turnId: "", conversationId: "", userMessageId: "", responseId: "", model: "", lastSeq: 0, content: "", activity: [], toolCalls: [], sources: [],
    leftOut: [], injected: [], notices: [], error: null, usage: null, status: "running", cited: null,
  };
}

const STATUS: Record<string, MessageStatus> = { completed: "completed", cancelled: "interrupted", failed: "failed", limit_reached: "limit_reached" };
const CALL_STATUS: Record<string, ToolCall["status"]> = { completed: "completed", failed: "error", rejected: "rejected" };

/** One event more. An event that was seen already, or a type that is unknown, changes nothing. */
export function fold(reply: Reply, event: TurnEvent): void {
  if (event.seq <= reply.lastSeq) return;
  reply.lastSeq = event.seq;
  reply.turnId = event.turn_id;
  HANDLERS[event.type]?.(reply, event as never);
}

function call(reply: Reply, id: string): ToolCall | undefined {
  return reply.toolCalls.find((one) => one.id === id);
}

/** Text that stands before a call and text after it are two paragraphs, as the agent stores them; the agent sends the break. */
const HANDLERS: Record<string, (reply: Reply, event: never) => void> = {
  TurnStarted(reply, event: { conversation_id: string; user_message_id: string; response_id: string; model: string }) {
    reply.conversationId = event.conversation_id;
    reply.userMessageId = event.user_message_id;
    reply.responseId = event.response_id;
    reply.model = event.model;
  },
  ContextInjected(reply, event: { items: Injected[] }) {
    reply.injected = event.items;
  },
  TextDelta(reply, event: { text: string }) {
    reply.content += event.text;
    reply.status = "running";
  },
  ThinkingDelta(reply, event: { text: string }) {
    const last = reply.activity.at(-1);
    if (last?.type === "thinking") last.text += event.text;
    else reply.activity.push({ type: "thinking", text: event.text });
    reply.status = "running";
  },
  ToolCallStart(reply, event: { tool_call_id: string; name: string; round: number }) {
    if (call(reply, event.tool_call_id)) return;
    reply.toolCalls.push({ id: event.tool_call_id, name: event.name, arguments: "", status: "running", round: event.round, hits: null });
    reply.activity.push({ type: "tool_call", id: event.tool_call_id });
  },
  ToolCallDelta(reply, event: { tool_call_id: string; arguments: string }) {
    const found = call(reply, event.tool_call_id);
    if (found && typeof found.arguments === "string") found.arguments += event.arguments;
  },
  ApprovalRequired(reply, event: { tool_call_id: string; arguments: unknown } & Approval) {
    const found = call(reply, event.tool_call_id);
    if (!found) return;
    const { workspace, path, diff, diff_sha256 } = event;
    Object.assign(found, { status: "awaiting_approval", arguments: event.arguments, approval: { workspace, path, diff, diff_sha256 } });
  },
  ToolCallEnd(reply, event: { tool_call_id: string; arguments: unknown; status: string; hits?: number | null; error?: string | null }) {
    const found = call(reply, event.tool_call_id);
    if (!found) return;
    found.status = CALL_STATUS[event.status] ?? "error";
    found.arguments = event.arguments;
    found.hits = event.hits ?? null;
    found.error = event.error ?? null;
    if (reply.status === "awaiting_approval" && !reply.toolCalls.some((one) => one.status === "awaiting_approval")) reply.status = "running";
  },
  Citation(reply, event: Source) {
    const at = reply.sources.findIndex((source) => source.number === event.number);
    const { number, citation_id, block_id, workspace, file_path, heading_path, locator, excerpt } = event;
    const source = { number, citation_id, block_id, workspace, file_path, heading_path, locator, excerpt };
    if (at < 0) reply.sources.push(source);
    else reply.sources[at] = source;
  },
  Notice(reply, event: Said & { left_out?: LeftOut[] }) {
    reply.notices.push({ code: event.code, message: event.message });
    if (event.left_out) reply.leftOut.push(...event.left_out);
  },
  RoundRestarted(reply, event: { content_characters: number; activity_entries: number; citations: number[]; left_out: number }) {
    reply.content = firstCodePoints(reply.content, event.content_characters);
    reply.activity = reply.activity.slice(0, event.activity_entries);
    const kept = new Set(reply.activity.flatMap((entry) => (entry.type === "tool_call" ? [entry.id] : [])));
    reply.toolCalls = reply.toolCalls.filter((one) => kept.has(one.id));
    reply.sources = reply.sources.filter((source) => event.citations.includes(source.number));
    reply.leftOut = reply.leftOut.slice(0, event.left_out);
    reply.status = "running";
  },
  Error(reply, event: Said) {
    reply.error = { code: event.code, message: event.message, retriable: event.retriable ?? false };
  },
  Usage(reply, event: Usage) {
    const { input_tokens, output_tokens, total_tokens, cached_tokens, reasoning_tokens, rounds, partial } = event;
    reply.usage = { input_tokens, output_tokens, total_tokens, cached_tokens, reasoning_tokens, rounds, partial };
  },
  Suspended(reply) {
    reply.status = "awaiting_approval";
  },
  Done(reply, event: { status: string; cited: number[] }) {
    reply.status = STATUS[event.status] ?? "failed";
    reply.cited = event.cited;
    for (const one of reply.toolCalls) if (one.status === "running" || one.status === "awaiting_approval") one.status = "error";
  },
};

function firstCodePoints(text: string, count: number): string {
  let index = 0;
  for (let taken = 0; taken < count && index < text.length; taken += 1) index += text.codePointAt(index)! > 0xffff ? 2 : 1;
  return text.slice(0, index);
}

/** The reply as the message that a reload would bring, but for its siblings. */
export function asMessage(reply: Reply, before: Partial<Message> = {}): Message {
  return {
    versions: [reply.responseId],
    created_at: new Date().toISOString(),
    ...before,
    id: reply.responseId,
    turn_id: reply.turnId,
    parent_message_id: reply.userMessageId,
    role: "assistant",
    content: reply.content,
    status: reply.status,
    thinking: reply.activity.map((entry) => (entry.type === "thinking" ? entry.text : "")).join(""),
    activity: reply.activity,
    injected: [],
    tool_calls: reply.toolCalls,
    sources: reply.sources,
    left_out: reply.leftOut,
    cited: reply.cited ?? [],
    usage: reply.usage,
  };
}
