import assert from "node:assert/strict";
import test from "node:test";
import { plainText } from "../src/markdown/plain-text";

test("what stands in Markdown is said without its marks", () => {
  assert.equal(plainText("## Proving\n\nLet it *prove* for **two** hours\nat `24 °C`, see [Bread](Kitchen/Bread.md)."), "Proving Let it prove for two hours at 24 °C, see Bread.");
  assert.equal(plainText("- [x] flour\n- water\n\n1. mix\n\n> [!tip] Warm\n> Use it warm."), "flour water mix Warm Use it warm.");
  assert.equal(plainText("| a | b |\n|---|---|\n| 1 | 2 |"), "a b 1 2");
  assert.equal(plainText("```py\nprint(1)\n```\n\n$x^2$ ~~no~~ ![a loaf](loaf.png)"), "print(1) x^2 no a loaf");
});

test("what is no mark stays", () => {
  assert.equal(plainText("2 * 3 * 4 and snake_case_name, 5 < 6, \\*so\\*, &amp;"), "2 * 3 * 4 and snake_case_name, 5 < 6, *so*, &");
  assert.equal(plainText("<div>\nx\n</div>\n\nun<b>bold</b>"), "x unbold");
  assert.equal(plainText("broken [off in a li…"), "broken [off in a li…");
});
