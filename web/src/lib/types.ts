import type { Tensor } from "./tensor";

export interface Token {
  i: number;
  id: number;
  text: string;
  display: string;
  special: boolean;
  joined?: boolean;
  bytes?: string | null;
}

export interface Model {
  id: string;
  name: string;
  family: string;
  tasks: string[];
  n_layers: number;
  n_heads: number;
  n_key_heads: number;
  d_model: number;
  d_head: number;
  d_hidden: number;
  vocab_size: number;
  max_len: number;
  longest: number | null;
  positions: string;
  tokenizer: string;
  norm: "pre" | "post";
  causal: boolean;
  parts: string[];
  labels?: string[];
  memory?: number;
  n_params: number;
  checkpoints: { id: string; step: number; val_loss: number | null }[];
  default_checkpoint: string;
  sample: string;
  sample_target?: string;
}

export interface Trace {
  id: string;
  model: string;
  checkpoint: string;
  family: string;
  tokens: Token[];
  target_tokens?: Token[];
  text_tokens?: Token[] | null; // the whole text, of a model that reads its last segment
  sentences?: number[] | null;
  parts: { part: string; n_layers: number; rows: number; cols: number }[];
  query_tokens: Record<string, Token[]>;
  key_tokens: Record<string, Token[]>;
  n_layers: number;
  n_heads: number;
  shapes: { stage: string; part: string; shape: number[]; axes: string }[];
  thumbs: Record<string, Tensor>;
  entropy: Record<string, Tensor>;
  previous: Record<string, Tensor>;
  first: Record<string, Tensor>;
  bits: Tensor | null;
  characters: number | null;
  mask_id: number | null;
  nonfinite: { part: string | null; layer: number | null; stage: string; count: number; nan: number; inf: number }[];
  truncated: boolean;
  probs?: { label: string; p: number }[];
}

/** One head with all its queries. */
export interface Head {
  q: Tensor;
  k: Tensor;
  v: Tensor;
  output: Tensor;
  scores_raw: Tensor;
  scores_scaled: Tensor;
  bias: Tensor | null;
  scores_masked: Tensor;
  weights: Tensor;
  scale: number;
  group: { key_head: number; of: number } | null;
}

export interface Query {
  q: Tensor;
  k: Tensor;
  products: Tensor;
  scores_raw: Tensor;
  scores_scaled: Tensor;
  bias?: Tensor | null;
  scores_masked: Tensor;
  weights: Tensor;
  v: Tensor;
  contributions: Tensor;
  output: Tensor;
  scale: number;
  group?: { key_head: number; of: number } | null;
}

export interface Runs {
  id: string;
  name: string;
  family: string;
  step: number;
  steps?: number;
  state: "running" | "silent" | "ended";
  reason?: string;
  quiet: number;
  model?: string | null;
}
