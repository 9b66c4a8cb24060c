// What opens over the page and closes again: menus (<details class="menu">), the list of sessions on a phone, a question.

const narrow = matchMedia("(max-width: 60rem)"); // as in style.css

/** Menus close when something in them is chosen, when one clicks elsewhere, and with Esc. */
function closeMenus(except) {
  for (const menu of document.querySelectorAll("details.menu[open]")) if (menu !== except) menu.open = false;
}

document.addEventListener("click", ({ target }) => {
  const menu = target.closest?.("details.menu");
  closeMenus(menu && !target.closest("[data-closes], a, .menu > div button") ? menu : null);
});

/** What Esc closes, if anything is open; it says whether anything was. */
export function closeTopmost() {
  const menu = document.querySelector("details.menu[open]");
  if (menu) {
    menu.open = false;
    menu.querySelector("summary").focus();
    return true;
  }
  if (!sidebarIsOver()) return false;
  showSidebar(false);
  document.getElementById("open-sidebar").focus();
  return true;
}

/** Whether the list of sessions lies over the conversation, as on a phone. */
function sidebarIsOver() {
  return narrow.matches && document.body.dataset.sidebar === "open";
}

/** Opens or closes the list of sessions; it is always there where there is room. */
export function showSidebar(open) {
  document.body.dataset.sidebar = open ? "open" : "closed";
  settle();
}

function settle() {
  const over = sidebarIsOver();
  document.getElementById("sidebar").inert = narrow.matches && !over;
  for (const part of document.querySelectorAll("body > header, body > main")) part.inert = over;
  document.getElementById("open-sidebar").setAttribute("aria-expanded", String(over));
}

narrow.addEventListener("change", settle);
settle();

/** Asks a question; action runs if the answer is yes. */
export function ask(question, yes, action) {
  const dialog = document.getElementById("confirm");
  dialog.querySelector("p").textContent = question;
  dialog.querySelector("#confirm-yes").textContent = yes;
  dialog.querySelector("form").onsubmit = ({ submitter }) => {
    if (submitter?.value === "yes") action();
  };
  dialog.showModal();
}
