import type { Component } from "svelte";
import { s } from "./lib/strings";
import type { Model } from "./lib/types";
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
  name: string;
  free: boolean; // shows something without a model
  saved?: boolean; // only in files that Python writes
  component: Component<{ model?: Model; models: Model[]; limits: Record<string, number> }>;
}

/** The pages, in the order of the tabs. */
export const views = [
  { id: "home", name: s.views.home, free: false, component: Home },
  { id: "attention", name: s.views.attention, free: true, component: Attention },
  { id: "norm", name: s.views.norm, free: false, component: Norm },
  { id: "mlp", name: s.views.mlp, free: false, component: Mlp },
  { id: "order", name: s.views.order, free: false, component: Order },
  { id: "space", name: s.views.space, free: false, component: Space },
  { id: "generate", name: s.views.generate, free: false, component: Generate },
  { id: "compress", name: s.views.compress, free: false, component: Compress },
  { id: "training", name: s.views.training, free: true, component: Training },
  { id: "stream", name: s.views.stream, free: false, component: Stream },
  { id: "tasks", name: s.views.tasks, free: true, component: Tasks },
  { id: "reach", name: s.views.reach, free: true, component: Reach },
  { id: "compare", name: s.views.compare, free: false, component: Compare },
  { id: "watched", name: s.watched.tab, free: true, saved: true, component: Watched },
] as View[];
