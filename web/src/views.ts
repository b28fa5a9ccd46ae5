import type { Component } from "svelte";
import { s } from "./lib/strings";
import type { Model } from "./lib/types";
import Architectures from "./views/Architectures.svelte";
import Attention from "./views/Attention.svelte";
import Compare from "./views/Compare.svelte";
import Compress from "./views/Compress.svelte";
import Generate from "./views/Generate.svelte";
import Home from "./views/Home.svelte";
import Mlp from "./views/Mlp.svelte";
import Norm from "./views/Norm.svelte";
import Order from "./views/Order.svelte";
import Reach from "./views/Reach.svelte";
import Space from "./views/Space.svelte";
import Stream from "./views/Stream.svelte";
import Tasks from "./views/Tasks.svelte";
import Training from "./views/Training.svelte";
import Watched from "./views/Watched.svelte";

export interface View {
  id: string;
  free: boolean; // shows something without a model
  saved?: boolean; // only in files that Python writes
  component: Component<{ model?: Model; models: Model[]; limits: Record<string, number> }>;
}

/** The pages, in the order of the tabs. */
export const views = [
  { id: "home", free: false, component: Home },
  { id: "attention", free: true, component: Attention },
  { id: "norm", free: false, component: Norm },
  { id: "mlp", free: false, component: Mlp },
  { id: "order", free: false, component: Order },
  { id: "space", free: false, component: Space },
  { id: "generate", free: false, component: Generate },
  { id: "compress", free: false, component: Compress },
  { id: "training", free: true, component: Training },
  { id: "stream", free: false, component: Stream },
  { id: "tasks", free: true, component: Tasks },
  { id: "architectures", free: true, component: Architectures },
  { id: "reach", free: true, component: Reach },
  { id: "compare", free: false, component: Compare },
  { id: "watched", free: true, saved: true, component: Watched },
] as View[];

/** The name of a page, in the language that is shown. */
export const nameOf = (id: string): string => (s.views as Record<string, string>)[id] ?? id;
