import assert from "node:assert/strict";
import { webcrypto } from "node:crypto";
import test from "node:test";
import { canonical, sha256 } from "../src/canonical-json";

test("keys are sorted by UTF-16 code units, nothing is escaped that need not be", () => {
  assert.equal(canonical({ "\u20ac": 1, "\r": 2, "1": 3, "\ud83d\ude00": 4, "\ufb33": 5, "\u00f6": 6 }), '{"\\r":2,"1":3,"\u00f6":6,"\u20ac":1,"\ud83d\ude00":4,"\ufb33":5}');
  assert.equal(canonical({ b: [true, null, 1e21, 1e-7, 0.5, -0], a: "</script>\u2028" }), '{"a":"</script>\u2028","b":[true,null,1e+21,1e-7,0.5,0]}');
});

globalThis.crypto ??= webcrypto as Crypto; // Node 18 has it under this name alone

test("the hash is that of the bytes in UTF-8", async () => {
  assert.equal(await sha256(canonical({ 茶: "é" })), "1630b3fdc9600fb8237e9ac88d5b790dfa1676892520fd124199b7af22548458");
});
