import assert from "node:assert/strict";
import test from "node:test";
import { asMessage, fold, newReply, type Reply } from "../src/chat/turn-fold";

function folded(...events: Record<string, unknown>[]): Reply {
  const reply = newReply();
  events.forEach((event, index) => fold(reply, { seq: index + 1, turn_id: "t", type: "", ...event } as never));
  return reply;
}
const started = { type: "TurnStarted", conversation_id: "c", user_message_id: "u", response_id: "r", model: "m" };
const thought = (text: string) => ({ type: "ThinkingDelta", text });
const said = (text: string) => ({ type: "TextDelta", text });
const call = (id: string) => ({ type: "ToolCallStart", tool_call_id: id, name: "rag.search", round: 1 });
const cited = (number: number) => ({ type: "Citation", number, citation_id: `i${number}`, block_id: "b", workspace: "w", file_path: "a.md", heading_path: [], locator: null, excerpt: "" });

test("thinking and calls keep the order in which they came", () => { // VT-1
  const reply = folded(started, thought("a"), thought("b"), call("1"), thought("c"), { type: "ToolCallEnd", tool_call_id: "1", arguments: { query: "q" }, status: "completed", hits: 2 });
  assert.deepEqual(reply.activity, [{ type: "thinking", text: "ab" }, { type: "tool_call", id: "1" }, { type: "thinking", text: "c" }]);
  assert.equal(asMessage(reply).thinking, "abc");
  assert.deepEqual(reply.toolCalls[0], { id: "1", name: "rag.search", arguments: { query: "q" }, status: "completed", round: 1, hits: 2, error: null });
});

test("an event that comes a second time is nothing", () => {
  const reply = folded(started, said("once"));
  fold(reply, { type: "TextDelta", seq: 2, turn_id: "t", text: "twice" });
  assert.equal(reply.content, "once");
});

test("an unknown event is passed over", () => {
  assert.equal(folded(started, { type: "SomethingNew", text: "?" }, said("x")).content, "x");
});

test("a restarted round takes back what it had said, counted in code points", () => {
  const reply = folded(
    started, thought("kept"), call("1"), cited(1), { type: "ToolCallEnd", tool_call_id: "1", arguments: {}, status: "completed" }, said("𝒳 stays"),
    thought("void"), call("2"), cited(2), said(" and this goes"),
    { type: "RoundRestarted", round: 2, attempt: 2, content_characters: 7, activity_entries: 2, citations: [1], left_out: 0 }, said(", anew"),
  );
  assert.equal(reply.content, "𝒳 stays, anew");
  assert.deepEqual(reply.activity.length, 2);
  assert.deepEqual(reply.toolCalls.map((one) => one.id), ["1"]);
  assert.deepEqual(reply.sources.map((one) => one.number), [1]);
});

test("a turn waits for a decision, and goes on", () => {
  const asked = { type: "ApprovalRequired", tool_call_id: "1", name: "notes.append", arguments: {}, workspace: "w", path: "a.md", diff: "", diff_sha256: "d" };
  const reply = folded(started, call("1"), asked, { type: "Suspended", reason: "awaiting_approval", tool_call_ids: ["1"] });
  assert.equal(reply.status, "awaiting_approval");
  assert.equal(reply.toolCalls[0]!.approval!.path, "a.md");
  fold(reply, { type: "ToolCallEnd", seq: 5, turn_id: "t", tool_call_id: "1", arguments: {}, status: "rejected" });
  assert.equal(reply.status, "running");
  fold(reply, { type: "Done", seq: 6, turn_id: "t", status: "completed", cited: [] });
  assert.equal(asMessage(reply).status, "completed");
});

test("a stopped turn is what a stored message calls interrupted", () => {
  assert.equal(folded(started, said("half"), { type: "Done", status: "cancelled", cited: [] }).status, "interrupted");
});
