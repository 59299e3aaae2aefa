import assert from "node:assert/strict";
import test from "node:test";
import { KEYS, textOf } from "../src/i18n";

test("both languages name the same values", () => {
  for (const key of KEYS) {
    const names = (of: "en" | "zh") => [...textOf(of, key).matchAll(/\{\w+\}/g)].map(String).sort();
    assert.deepEqual(names("zh"), names("en"), key);
  }
});
