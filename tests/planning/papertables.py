"""GDPFed+, Tables 1 and 5 and Appendix B.2, as printed."""

# name: sampling ratios in percent of Table 1
RATIOS = {
    "gdpfed-fmnist": (0.69, 1.89, 3.42),
    "gdpfed-svhn": (1.66, 4.67, 8.68),
    "gdpfed-shakespeare": (4.79, 9.83, 15.21),
    "gdpfed-cifar10": (3.61, 9.62, 16.77),
}
# name: sigma^2 of each group, Table 5: with uniform ratios (GDPFed), and with the
# ratios of Table 1 (GDPFed+)
UNIFORM = {
    "gdpfed-fmnist": (2.26, 0.90, 0.53),
    "gdpfed-svhn": (13.20, 2.50, 1.16),
    "gdpfed-shakespeare": (17.14, 3.26, 1.41),
    "gdpfed-cifar10": (3.52, 0.95, 0.49),
}
OPTIMISED = {
    "gdpfed-fmnist": (1.42, 0.87, 0.70),
    "gdpfed-svhn": (2.38, 2.29, 2.23),
    "gdpfed-shakespeare": (4.45, 3.18, 2.46),
    "gdpfed-cifar10": (0.98, 0.91, 0.83),
}
# name: sampling ratios in percent of individualised sampling, Appendix B.2
IDP_RATIOS = {
    "gdpfed-fmnist": (0.82, 2.80, 2.38),
    "gdpfed-svhn": (4.07, 4.93, 6.00),
    "gdpfed-cifar10": (6.09, 11.11, 12.80),
    "gdpfed-shakespeare": (10.51, 7.49, 12.00),
}
