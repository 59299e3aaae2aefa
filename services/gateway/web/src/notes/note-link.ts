/** Where a link in a message or a note leads: a note of which workspace, by its path there. */

import type { Workspace } from "../contracts";

export interface NotePlace { workspace: string; path: string; fragment: string }

/** `base`: the path, from the workspace's directory on, of the directory that a relative target starts at. Null where it leads to no workspace. */
export function noteOf(target: string, workspaces: Workspace[], current: string | null, base = ""): NotePlace | null {
  const hash = target.indexOf("#");
  const address = hash < 0 ? target : target.slice(0, hash);
  const fragment = decoded(hash < 0 ? "" : target.slice(hash + 1));
  const here = workspaces.find((one) => one.id === current);
  const start = address.startsWith("/") ? [] : here ? [here.directory, ...base.split("/").filter(Boolean)] : null;
  if (!start || address === "") return null;
  const segments = [...start];
  for (const raw of address.split("/")) {
    if (raw === "" || raw === ".") continue;
    if (raw !== "..") segments.push(decoded(raw));
    else if (segments.pop() === undefined) return null;
  }
  const workspace = workspaces.find((one) => one.directory.normalize() === segments[0]?.normalize());
  if (!workspace) return null;
  const notes = workspace.notes_dir.split("/").filter(Boolean);
  const inside = segments.slice(1);
  if (notes.some((name, index) => inside[index] !== name)) return null;
  const path = inside.slice(notes.length).join("/");
  return path === "" ? null : { workspace: workspace.id, path, fragment };
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
