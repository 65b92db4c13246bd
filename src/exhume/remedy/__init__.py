"""Turn findings into actions: plans ordered by least harm, carried out within bounds."""
