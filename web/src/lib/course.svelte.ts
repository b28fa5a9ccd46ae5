import table from "../lessons/course.json";
import { open, page, type State } from "./page.svelte";
import { s } from "./strings";

/** A step of the course: a page, the part of it that the step speaks of, and what to set there. */
export interface Step {
  id: string;
  section: string;
  view: string;
  where: Partial<State>; // the part of the page where the step belongs
  set: Partial<State>; // what is set on the way in, and may be changed there
  lit?: string; // the panel that it speaks of, and those that are presented with it
  beside?: string[];
  formula?: string;
  post?: string; // the formula for a model that normalizes after each part
  code?: string;
  minutes?: number; // in a lecture, which leaves out the steps without
  ask?: string; // the question that it begins with: see lib/questions.ts
}

/** All steps, in the order of the post. */
export const steps = (table as (Omit<Step, "where" | "set"> & Partial<Step>)[]).map((each): Step => ({ where: {}, set: {}, ...each }));

const stands = (step: Step) => step.view === page.view && Object.entries(step.where).every(([name, value]) => page[name as keyof State] === value);

/** The reader's place: -1 before the first step was opened. */
export const placeInCourse = () => steps.findIndex((each) => each.id === page.step);

/** The step that fits what is on the screen: the reader's own, or the first that speaks of this part. */
export function shownStep(): number {
  const own = placeInCourse();
  if (own >= 0 && stands(steps[own])) return own;
  const here = steps.findIndex(stands);
  return here >= 0 ? here : steps.findIndex((each) => each.view === page.view);
}

/** The state of the page at a step, apart from the reader's model and text. */
export const stateAt = (step: Step): Partial<State> => ({ view: step.view, ...step.where, ...step.set, step: step.id });

export function enter(n: number): void {
  const { view, ...rest } = stateAt(steps[n]);
  const turns = view !== page.view;
  open(view as string, rest);
  if (turns) scrollTo({ top: 0 });
}

/** The next step in a direction; a saved page holds one page only. */
export function neighbour(from: number, by: 1 | -1, live: boolean): number | undefined {
  const to = from + by;
  return steps[to] && (live || steps[to].view === page.view) ? to : undefined;
}

export interface Lesson {
  title: string;
  text: string;
  post?: string; // the text for a model that normalizes after each part
}
export const lessonOf = (step: Step): Lesson => (s.lessons as Record<string, Lesson>)[step.id];
