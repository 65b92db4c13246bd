import { render } from "preact";
import "../styles/base.css";
import "../styles/notices.css";
import "../styles/parts.css";
import "../styles/fleet.css";
import { startKeyboard } from "../keyboard";
import { startTheme } from "../theme";
import { App } from "./app";
import { startFleet } from "./lake";
import { startAddress } from "./state";

startTheme();
startAddress();
startKeyboard();
startFleet();

const place = document.getElementById("page");
if (!place) throw new Error("the page has no place to draw in");
render(<App />, place);
