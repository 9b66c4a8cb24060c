// "What would be sent now?": the dry run of the context, in a dialog. It is loaded when it is first asked for.

import { element } from "./element.js";
import { reserveOf } from "./meter.js";

/** Fills a dialog with a ContextPreview of client.d.ts and opens it. textOf(messageId) is what the page shows of a message, or
 * undefined; content is the new one's. */
export function showPreview(dialog, { context, summary, messages }, content, textOf) {
  const kept = reserveOf(context.maxTokens);
  const rest = ["folded", "dropped", "skipped"].filter((what) => context[what].count > 0).map((what) => `${context[what].count} ${what}`);
  dialog.replaceChildren(
    headOf(dialog),
    element("p", {}, `${n(context.promptTokens)} tokens would be sent; ${n(context.maxTokens - kept)} fit, beside ${n(kept)} for the reply. ` +
      `Policy ${context.policy}: ${[`${context.kept.count} kept`, ...rest].join(", ")}.`),
    ...(summary ? [element("h3", {}, "The summary"), element("blockquote", {}, summary)] : []),
    element("h3", {}, "The messages, the oldest first"),
    element("ol", {}, ...messages.map((message) => itemOf(message, message.messageId ? textOf(message.messageId) : content))),
  );
  dialog.showModal();
}

function headOf(dialog) {
  const close = element("button", { type: "button", className: "icon", ariaLabel: "Close" }, element("span", { ariaHidden: "true" }, "✕"));
  close.addEventListener("click", () => dialog.close());
  return element("div", { className: "bar" }, element("h2", { id: "preview-title" }, "What would be sent now"), close);
}

function itemOf({ role, tokens, decision, reason }, text) {
  const item = element("li", {},
    element("p", { className: "what" }, element("b", {}, decision), ` · ${role} · ${n(tokens)} tokens · ${reason}`));
  if (text) item.append(element("p", { className: "said" }, text.length > 200 ? `${text.slice(0, 200)}…` : text));
  item.dataset.decision = decision;
  return item;
}

function n(count) {
  return count.toLocaleString("en");
}
