// The dialog "Next prompt": the messages that the model would get with the text in the composer, and the reasons. Loaded on first
// use.

import { element } from "./element.js";
import { reserveOf } from "./meter.js";

const decisions = { folded: "summarised" }; // the API's name → the page's word

/** Shows a ContextPreview (client.d.ts) in a dialog. textOf(messageId) returns the text of a message on the page, or undefined.
 * content is the text of the new message. */
export function showPreview(dialog, { context, summary, messages }, content, textOf) {
  const reserve = reserveOf(context.maxTokens);
  const rest = ["folded", "dropped", "skipped"].filter((what) => context[what].count > 0).map((what) => `${context[what].count} ${decisions[what] ?? what}`);
  dialog.replaceChildren(
    headOf(dialog),
    element("p", {}, `The prompt has ${n(context.promptTokens)} tokens of ${n(context.maxTokens - reserve)}; ${n(reserve)} more are reserved for the reply. ` +
      `Policy ${context.policy}: ${[`${context.kept.count} kept`, ...rest].join(", ")}.`),
    ...(summary ? [element("h3", {}, "Summary"), element("blockquote", {}, summary)] : []),
    element("h3", {}, "Messages, oldest first"),
    element("ol", {}, ...messages.map((message) => itemOf(message, message.messageId ? textOf(message.messageId) : content))),
  );
  dialog.showModal();
}

function headOf(dialog) {
  const close = element("button", { type: "button", className: "icon", ariaLabel: "Close" }, element("span", { ariaHidden: "true" }, "✕"));
  close.addEventListener("click", () => dialog.close());
  return element("div", { className: "bar" }, element("h2", { id: "preview-title" }, "Next prompt"), close);
}

function itemOf({ role, tokens, decision, reason }, text) {
  const item = element("li", {},
    element("p", { className: "what" }, element("b", {}, decisions[decision] ?? decision), ` · ${role} · ${n(tokens)} tokens · ${reason}`));
  if (text) item.append(element("p", { className: "said" }, text.length > 200 ? `${text.slice(0, 200)}…` : text));
  item.dataset.decision = decision;
  return item;
}

function n(count) {
  return count.toLocaleString("en");
}
