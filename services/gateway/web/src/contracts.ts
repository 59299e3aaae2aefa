/** What the gateway says, as far as this client reads it; docs/http.md and /api/openapi.json describe it. */

export type Locale = "zh" | "en";
export interface Account { id: string; username: string; role: "admin" | "member" }
export interface Session { account: Account; csrf_token: string }
export interface Preferences { locale: Locale; markdown: { math: boolean; diagrams: boolean; callouts: boolean } }

export interface Workspace { id: string; title: string; directory: string; notes_dir: string; notes: number; access: "read" | "write"; available: boolean }
export interface NoteSummary { path: string; title: string; tags: string[]; content_hash: string; size: number; modified_at: string }
export interface Note extends NoteSummary { content: string }
export interface NoteChanged { path: string; content_hash: string | null; kind: "created" | "updated" | "moved" | "deleted"; from?: string }

export interface Source {
  number: number;
  citation_id: string | null;
  block_id: string | null;
  workspace: string | null;
  file_path: string | null;
  heading_path: string[];
  locator: { start: number; end: number; content_hash: string } | null;
  excerpt: string | null;
  state?: "current" | "changed" | "gone" | null;
}
export interface Approval { workspace: string; path: string; diff: string; diff_sha256: string }
export interface ToolCall {
  id: string;
  name: string;
  arguments: unknown;
  status: "running" | "awaiting_approval" | "completed" | "error" | "rejected";
  round: number;
  hits: number | null;
  approval?: Approval | null;
  error?: string | null;
}
export type Activity = { type: "thinking"; text: string } | { type: "tool_call"; id: string };
export interface Injected { ref: string; title: string; path: string; content_hash: string; characters: number; form: "full" | "outline"; cited?: boolean }
export interface LeftOut { block_id: string; file_path: string; heading_path: string[]; reason: string }
export interface Usage {
  input_tokens: number | null;
  output_tokens: number | null;
  total_tokens: number | null;
  cached_tokens: number | null;
  reasoning_tokens: number | null;
  rounds: number;
  partial: boolean;
}
export type MessageStatus = "running" | "completed" | "interrupted" | "failed" | "limit_reached" | "awaiting_approval";
export interface Message {
  id: string;
  turn_id: string | null;
  parent_message_id: string | null;
  role: "user" | "assistant";
  content: string;
  status: MessageStatus;
  thinking: string;
  activity: Activity[] | null;
  injected: Injected[];
  tool_calls: ToolCall[];
  sources: Source[];
  left_out: LeftOut[];
  cited: number[];
  versions: string[];
  usage: Usage | null;
  created_at: string;
}
export interface ConversationSummary { id: string; title: string; workspace: string | null; updated_at: string }
export interface Conversation extends ConversationSummary { active_leaf: string | null; active_response_id: string | null; messages: Message[] }

export interface TurnEvent { type: string; seq: number; turn_id: string; [field: string]: unknown }

export interface Reference { ref: string; label: string }
export interface NoteCandidate { kind: "note"; name: string; description: string; icon: string; insert: { source: string; ref: string; label: string; clipboard_text: string } }
export interface WorkspaceCandidate { kind: "workspace"; name: string; description: string; icon: string; text: string }
export type Candidate = NoteCandidate | WorkspaceCandidate;
export interface MissingReference { ref: string; label: string; message: string; moved_to: string | null }

export interface IndexStatus { indexed: number; pending: number; held: number; unembedded: number; oldest_pending_seconds: number | null; last_error: string | null }
export interface Page<T> { items: T[]; page: number; page_size: number; total: number }
