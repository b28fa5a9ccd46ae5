import "./app.css";
import { mount, unmount } from "svelte";
import App from "./App.svelte";
import { Frozen, Live, type Api, type Payload } from "./lib/api";
import { page, restore, restoreHash } from "./lib/page.svelte";

/** Draw the explorer into an element: live with an `api`, otherwise from the answers of a payload. */
export function show(el: HTMLElement, given: { view?: string; payload?: Payload; api?: Api }): () => void {
  if (given.payload) restore({ ...given.payload.state, view: given.payload.view });
  if (given.view) restore({ ...given.payload?.state, view: given.view });
  if (location.hash.length > 1 || !given.payload) restoreHash(location.hash);
  // On a narrow screen the picture comes first; the lesson opens when it is asked for.
  if (location.hash.length <= 1 && innerWidth < 900) page.guide = false;
  const api = given.api ?? new Frozen(given.payload ?? { view: "", state: {}, responses: {} });
  const app = mount(App, { target: el, props: { api, only: given.payload?.only_query ?? false } });
  return () => void unmount(app);
}

/** A notebook widget: the payload is a trait of the widget's model. */
export default {
  render({ model, el }: { model: { get(name: string): Payload }; el: HTMLElement }) {
    const payload = model.get("payload");
    return show(el, { view: payload.view, payload });
  },
};

const place = document.getElementById("explorer");
const saved = document.getElementById("payload");
if (place && saved) {
  const payload = JSON.parse(saved.textContent ?? "{}") as Payload;
  show(place, { view: payload.view, payload });
} else if (place) {
  show(place, { api: new Live() });
}
