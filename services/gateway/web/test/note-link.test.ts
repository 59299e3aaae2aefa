import assert from "node:assert/strict";
import test from "node:test";
import type { Workspace } from "../src/contracts";
import { noteOf } from "../src/notes/note-link";
import { frontMatterLines, linesOfPassage } from "../src/notes/passage";

const of = (id: string, directory: string, notes_dir = ""): Workspace => ({ id, title: id, directory, notes_dir, notes: 1, access: "write", available: true });
const ALL = [of("home", "vault"), of("other", "other place", ".notes")];

test("a link starts at the workspace, and leads to another one by its directory", () => { // MN-3
  assert.deepEqual(noteOf("Kitchen/Bread.md#Baking", ALL, "home"), { workspace: "home", path: "Kitchen/Bread.md", fragment: "Baking" });
  assert.deepEqual(noteOf("../other%20place/.notes/a%2520b.md", ALL, "home"), { workspace: "other", path: "a%20b.md", fragment: "" });
  assert.deepEqual(noteOf("/vault/Tea.md", ALL, null), { workspace: "home", path: "Tea.md", fragment: "" });
});

test("what leads out of every workspace is no note", () => {
  assert.equal(noteOf("../../etc/passwd", ALL, "home"), null);
  assert.equal(noteOf("../nowhere/a.md", ALL, "home"), null);
  assert.equal(noteOf("Tea.md", ALL, null), null);
  assert.equal(noteOf("../other%20place/a.md", ALL, "home"), null);
});

test("a link in a note starts at the note's folder", () => {
  assert.equal(noteOf("../Tea.md", ALL, "home", "/Kitchen")?.path, "Tea.md");
});

test("a passage is counted in code points", () => {
  assert.deepEqual(linesOfPassage("😀\nab\ncd\n", 2, 7), { first: 1, after: 3 });
});

test("front matter ends with its second line of dashes", () => {
  assert.equal(frontMatterLines("---\na: 1\n---\n# T\n"), 3);
  assert.equal(frontMatterLines("# T\n---\n"), 0);
});
