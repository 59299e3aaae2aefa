import assert from "node:assert/strict";
import test from "node:test";
import { samples } from "../src/admin/metrics-text";

test("labels are unescaped, comments passed over", () => {
  const text = '# HELP x y\nx_total{method="GET",route="/a\\"b"} 3.0 1700000000\ny 1e3\n';
  assert.deepEqual(samples(text), [{ name: "x_total", labels: { method: "GET", route: '/a"b' }, value: 3 }, { name: "y", labels: {}, value: 1000 }]);
});
