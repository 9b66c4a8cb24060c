// Puts the component of web/guides/ai-sdk.md into a page: with the history from the back end, a way to leave, and React's strict mode.
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import Chat from "./chat.jsx";

const session = await (await fetch("/history" + location.search)).json();
const root = createRoot(document.getElementById("root"));
window.show = () => root.render(<StrictMode><Chat {...session} /></StrictMode>);
window.leave = () => root.render(null);
window.show();
