import { placeInCourse, steps } from "./course.svelte";
import { page } from "./page.svelte";
import { questions, type Question } from "./questions";

/** What the reader guessed, in the address: "strongest~self[0][1][3]~2;..."; "-" for an answer that was only shown. */
export const shownOnly = "-";

interface Guess {
  ask: string;
  place: string;
  choice: string;
}

const all = (): Guess[] =>
  page.guess
    .split(";")
    .filter(Boolean)
    .map((each) => {
      const [ask, place = "", choice = ""] = each.split("~");
      return { ask, place, choice };
    });

/** The same numbers of another model or text are another question. */
const placeOf = (question: Question) => `${digest([page.model, page.checkpoint, page.text ?? ""].join("\n"))}.${question.place}`.replace(/[~;]/g, "_");

function digest(text: string): string {
  let state = 2166136261;
  for (const each of text) state = Math.imul(state ^ (each.codePointAt(0) as number), 16777619) >>> 0;
  return state.toString(36);
}

/** The question of the reader's step: nobody is asked who came to the page in another way. */
export function asked(): { ask: string; question: Question } | undefined {
  const ask = page.quiz ? steps[placeInCourse()]?.ask : undefined;
  const question = ask && steps[placeInCourse()].view === page.view ? questions[ask]?.ask() : undefined;
  return ask && question ? { ask, question } : undefined;
}

/** The guess for a question; "elsewhere" if it was answered with other numbers. */
export function guessed(ask: string, question: Question): string | "elsewhere" | undefined {
  const own = all().find((each) => each.ask === ask);
  if (!own) return undefined;
  return own.place === placeOf(question) ? own.choice : "elsewhere";
}

export function guess(ask: string, question: Question, choice: string): void {
  forget(ask);
  page.guess = [...page.guess.split(";").filter(Boolean), [ask, placeOf(question), choice].join("~")].join(";");
  question.start?.();
}

export function forget(ask: string): void {
  page.guess = all()
    .filter((each) => each.ask !== ask)
    .map((each) => [each.ask, each.place, each.choice].join("~"))
    .join(";");
}

/** The panels that hold the answer of a question that is still open. */
export function veiled(): string[] {
  const now = asked();
  return now && guessed(now.ask, now.question) === undefined ? questions[now.ask].hides : [];
}
