import assert from "node:assert/strict";
import test from "node:test";
import { commonEnds, diffLines } from "../src/unified-diff";

const DIFF = "--- a/Bread.md\n+++ b/Bread.md\n@@ -3,3 +3,4 @@ # Bread\n same\n-old\n+new\n+--- more\n same\n\\ No newline at end of file\n";

test("lines carry their numbers before and after", () => {
  assert.deepEqual(diffLines(DIFF), [
    { kind: "hunk", text: "# Bread" },
    { kind: "same", text: "same", before: 3, after: 3 },
    { kind: "removed", text: "old", before: 4, after: null },
    { kind: "added", text: "new", before: null, after: 4 },
    { kind: "added", text: "--- more", before: null, after: 5 },
    { kind: "same", text: "same", before: 5, after: 6 },
    { kind: "remark", text: "No newline at end of file" },
  ]);
});

test("what two lines have in common ends on whole characters", () => {
  assert.deepEqual(commonEnds("bake 20 min", "bake 25 min"), { head: 6, tail: 4 });
  assert.deepEqual(commonEnds("a😀", "a😁"), { head: 1, tail: 0 });
  assert.deepEqual(commonEnds("aa", "aaa"), { head: 2, tail: 0 });
});
