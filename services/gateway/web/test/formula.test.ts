import assert from "node:assert/strict";
import test from "node:test";
import { inlineMath } from "../src/markdown/math";

test("a formula is one, a price is none", () => {
  assert.deepEqual(inlineMath("$x^2$ is", 0), { tex: "x^2", display: false, end: 5 });
  assert.deepEqual(inlineMath("$$x$$", 0), { tex: "x", display: true, end: 5 });
  assert.deepEqual(inlineMath("\\(a\\)", 0), { tex: "a", display: false, end: 5 });
  assert.equal(inlineMath("$5 and $6", 0), null);
  assert.equal(inlineMath("$ x $", 0), null);
  assert.equal(inlineMath("$open", 0), null);
});
