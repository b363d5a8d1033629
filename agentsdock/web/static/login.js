// The token is asked once; from then on a cookie that no script can read stands for it.

import { json } from "./api.js";

const form = document.getElementById("login");
const problem = document.getElementById("problem");

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  problem.textContent = "";
  try {
    await json("POST", "/login", { token: form.elements.token.value });
    location.reload();
  } catch (error) {
    problem.textContent = error.message;
    form.elements.token.select();
  }
});

// Who comes by a link from elsewhere comes without the cookie, and has one all the same.
fetch("/page/session").then((answer) => { if (answer.ok) location.reload(); }, () => {});
