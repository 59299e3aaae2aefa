import assert from "node:assert/strict";
import test from "node:test";
import { markTitles, mentionAt } from "../src/chat/mention-text";

const typed = (text: string) => mentionAt(text, text.length)?.query ?? null;

test("an @ opens the menu where a word begins, and in no address", () => { // MN-1
  assert.equal(typed("@"), "");
  assert.equal(typed("see @te"), "te");
  assert.equal(typed("请看（@绿"), "绿");
  assert.equal(typed("me@example"), null);
  assert.equal(typed("@tea and"), null);
});

test("a directory with spaces is quoted", () => { // MN-2
  assert.equal(typed('@"other pl'), '"other pl');
  assert.equal(typed('@"other place"/Bi'), '"other place"/Bi');
  assert.equal(typed("@dir/rest"), "dir/rest");
});

test("the caret decides", () => {
  assert.deepEqual(mentionAt("@tea later", 3), { start: 0, query: "te" });
});

test("the longest title is marked", () => { // MN-7
  assert.deepEqual(markTitles("ask @Tea house, @Tea", ["Tea", "Tea house"]), [
    { text: "ask ", title: false }, { text: "@Tea house", title: true }, { text: ", ", title: false }, { text: "@Tea", title: true },
  ]);
  assert.deepEqual(markTitles("me@home @nobody", ["Tea"]), [{ text: "me@home @nobody", title: false }]);
});
